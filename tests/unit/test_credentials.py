"""Which options a settings file refuses, and which stay in their process."""

import pytest

from seglake.credentials import has_credentials, is_private, is_secret

OPTIONS = {  # (refused in a settings file, not pickled with a store)
    "aws_access_key_id": (True, True),
    "AWS_SECRET_ACCESS_KEY": (True, True),
    "aws_session_token": (True, True),
    "aws_sse_customer_key_base64": (True, True),
    "azure_storage_sas_key": (True, True),
    "azure_client_secret": (True, True),
    "google_service_account_key": (True, True),
    "password": (True, True),
    "azure_encryption_key": (True, True),
    "sas_url": (True, True),
    "proxy_url": (False, False),
    "proxy_excludes": (False, False),
    "aws_web_identity_token_file": (True, False),
    "google_application_credentials": (True, False),
    "aws_container_credentials_full_uri": (True, False),
    "azure_fabric_token_service_url": (True, False),
    "aws_sse_kms_key_id": (False, False),
    "aws_sse_bucket_key_enabled": (False, False),
    "google_service_account": (False, False),
    "endpoint": (False, False),
    "region": (False, False),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options(option: str) -> None:
    for name in (option, option.upper(), option.lower()):
        assert (is_secret(name), is_private(name, "value")) == OPTIONS[option]


def test_the_url_of_a_proxy_travels_unless_it_has_a_password() -> None:
    assert not is_private("proxy_url", "http://proxy:3128")
    assert is_private("proxy_url", "http://user:password@proxy:3128")


def test_urls() -> None:
    assert has_credentials("http://user:password@proxy")
    assert has_credentials("http://user@proxy")
    assert not has_credentials("http://proxy/a@b")
    assert not has_credentials("/data/a@b")
