"""What a task printed, as its history tells it."""

import pytest

from tercel.core.quoting import QUOTED_MOST, quoted


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "curl: (7) Failed to connect to store.lab port 443",
            "curl: (7) Failed to connect to store.lab port 443",
        ),
        ("  two\r\n\tlines \x1b[2Jand\x00 more\u202e\n", "two lines [2Jand more"),
        ("", ""),
        (
            "GET https://ada:hunter2@store.lab/a?token=hunter2&b=1: 503",
            "GET https://store.lab/a?… 503",
        ),
        ("at 'http://store.lab?hunter2' it said 503", "at 'http://store.lab?…' it said 503"),
        ("postgresql://ada:hunter2@db.lab/x is away", "postgresql://db.lab/x is away"),
        ("is it there? ask ada@lab", "is it there? ask ada@lab"),
        ("and/or? it is #1 of a/b", "and/or? it is #1 of a/b"),
        (
            "HTTPSConnectionPool(host='api.lab', port=443): Max retries exceeded with url: /v1/d?key=hunter2 (Caused by",
            "HTTPSConnectionPool(host='api.lab', port=443): Max retries exceeded with url: /v1/d?… (Caused by",
        ),
        ("PGPASSWORD=hunter2 api_key=hunter2 a=b", "PGPASSWORD=… api_key=… a=b"),
        ("GET /v1?token=hunter2 HTTP/1.1", "GET /v1?… HTTP/1.1"),
        ("https://u:p@hunter2@api.lab/x", "https://api.lab/x"),
        ("postgresql://u:hun/ter2@db/x", "postgresql://db/x"),
        ("from https://api.lab/b#access_token=hunter2 on", "from https://api.lab/b#… on"),
        (
            "+ curl -u ada:hunter2 https://store.lab/a?x=hunter2\ncurl: (22) error: 503",
            "+ curl … https://store.lab/a?… curl: (22) error: 503",
        ),
        ("++ curl -H 'Authorization: Bearer hunter2' x", "++ curl …"),
        ("x" * 100_000, "x" * (QUOTED_MOST - 1) + "…"),
    ],
)
def test_it_is_one_short_line_without_secrets_or_what_a_terminal_obeys(printed: str, told: str) -> None:
    assert quoted(printed) == told
