"""Certificates for servers of tests, from an authority of their own."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A private certificate authority."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._certificate = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        (folder / "authority.pem").write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._folder / "authority.pem"))

    def server(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._signed(name, key, x509.SubjectAlternativeName([x509.DNSName(host)]))
        path = self._folder / f"{host}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )
