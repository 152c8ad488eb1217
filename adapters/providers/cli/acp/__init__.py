from adapters.providers.cli.acp.provider import AcpProvider

__all__ = ["AcpProvider"]
