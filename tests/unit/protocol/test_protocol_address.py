"""`HOST:PORT`, with IPv6 hosts in brackets."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.address import Address, BadAddress

HOSTS = st.text(string.ascii_letters + string.digits + ".-_", min_size=1, max_size=20) | st.ip_addresses().map(str)


@given(host=HOSTS, port=st.integers(0, 65535))
def test_an_address_is_read_back_from_its_text(host: str, port: int) -> None:
    assert Address.parse(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "host", "host:", ":80", "host:port", "host:-1", "host:+1", "host:65536", "host:999999", "host: 80"),
        *("host:80\n", " host:80", "ho st:80", "http://host:80", "host:80/path", "host:\u0668\u0660"),
        *("::1:80", "[::1]", "[::1]:", "[]:80", "[host]:80", "[::1:80", "::1]:80"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        Address.parse(text)


@given(text=st.text(max_size=20) | st.text("[]:.%a1", max_size=12))
def test_arbitrary_text_is_an_address_or_bad(text: str) -> None:
    try:
        address = Address.parse(text)
    except BadAddress:
        return
    assert address.host
    assert 0 <= address.port <= 65535
