"""An external MCP server is run in one exact version, or not at all."""

import pytest

from adapters.policy import McpServerPolicy, PolicyError
from adapters.tools.mcp_pins import check_pinned

pytestmark = pytest.mark.spec("T7")

DIGEST = "sha256:" + "0a" * 32


def server(line: str) -> McpServerPolicy:
    command, *args = line.split()
    return McpServerPolicy(command=command, args=tuple(args))


@pytest.mark.parametrize(
    "line",
    [
        "npx server@1.2.3",
        "npx -y @scope/server@1.2.3 --port 1 latest",
        "/usr/bin/npx --yes server@1.2.3-beta.1",
        "npx --package=server@1.2.3 start",
        "npx -y -p server@1.2.3 -- start",
        "bunx server@0.1.2",
        "pnpm dlx @scope/server@1.0.0",
        "yarn dlx server@1.0.0",
        "uvx server==1.2",
        "uvx server@1.2.3",
        "uvx --python 3.11 server[extra]==1.2.3.post1",
        "uvx --from server==1.2.3 --with other==2.0 start",
        "uv tool run server==1.0rc1",
        "pipx run server==1.0",
        "pipx run --spec server==1.0 start",
        f"docker run -i --rm -e A=b registry.example/server@{DIGEST} stdio",
        f"podman run server:1.2@{DIGEST}",
        "python -m server",
        "python3 server.py",
        "/opt/server/bin/serve",
        "mcp-server-time --local",
    ],
)
def test_one_exact_version_is_taken(line: str) -> None:
    check_pinned("x", server(line))


@pytest.mark.parametrize(
    "line",
    [
        *(f"npx -y server{version}" for version in ("", "@latest", "@next", "@^1.2.3", "@~1.2.3", "@>=1.2.3", "@*")),
        *(f"npx @scope/server{version}" for version in ("", "@1", "@1.2", "@1.x", "@1.2.x", "@X", "@", "@1.2.3||2")),
        "npx github:owner/server@1.2.3",
        "npx https://example.com/server@1.2.3",
        "npx ./server@1.2.3",
        "npx npm:other@1.2.3",
        "npx",
        "npx -y",
        "npx -c anything",
        "npx -p",
        "npx --package=server start@1.2.3",
        "npx -p other@1.0.0 -p server start",
        "npx --package=other@1.0.0 --package=server start",
        # Options that nobody here knows: the next word may be their value and what is run comes after it.
        "npx --loglevel server@1.2.3 other",
        "pnpm --package=other dlx server@1.2.3",
        "pnpm dlx server",
        "yarn dlx server@latest",
        "npm exec server@1.2.3",
        "pnpm run server@1.2.3",
        "uvx server",
        "uvx server>=1.0",
        "uvx server==1.*",
        "uvx server~=1.2",
        "uvx server==1.2.x",
        "uvx server@latest",
        "uvx --from server start==1.2",
        "uvx --from=git+https://example.com/server start",
        "uvx --with other server==1.2",
        "uvx --with=other==1.0,another server==1.2",
        "uvx --with-requirements list.txt server==1.2",
        "uvx git+https://example.com/server@1.2.3",
        "uv run server==1.0",
        "pipx run server",
        "pipx install server==1.0",
        "docker run server",
        "docker run server:latest",
        "docker run -e A server:1.2.3",
        f"docker run -e server@{DIGEST} server:1.2.3",
        f"docker run --unknown server@{DIGEST} server:1.2.3",
        "docker run server@sha256:abc",
        f"docker exec server@{DIGEST}",
        "sh -c anything",
        "/bin/bash -c anything",
        "BASH -lc anything",
        "env npx server",
        "timeout 9 npx server",
        "go run example.com/server@latest",
    ],
)
def test_anything_else_is_refused_and_says_what_to_write(line: str) -> None:
    with pytest.raises(PolicyError, match=r"^policy\.mcp_servers\.things: .+; .*(write|name|install)"):
        check_pinned("things", server(line))
