"""Secrets among hyperparameters are replaced, exactly where they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_logger.redaction import REDACTED, Redactor

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
HF = "hf_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3f"

CONFIGURATION = {
    "run_name": "llama-7b-finetune",
    "seed": 17,
    "max_seq_len": 2048,
    "max_tokens": 128,
    "max_new_tokens": "256",
    "tokenizer_name": "EleutherAI/gpt-neox-20b",
    "model": {
        "name": "hf_causal_lm",
        "pretrained_model_name_or_path": "meta-llama/Llama-2-7b-hf",
        "revision": "hf_t5_base_v2",
        "use_auth_token": True,
        "hf_token": HF,
        "token": "abc",
    },
    "tokenizer": {
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "bos_token": "<s>",
        "unk_token": "<unk>",
        "eot_token": "<|endoftext|>",
        "decoder_start_token": "<s>",
        "eos_token_id": 2,
        "padding_side": "left",
        "additional_special_tokens": ["<a>", "<b>"],
    },
    "api_key": "k",
    "OPENAI_API_KEY": "k",
    "wandb": {"apiKey": "k", "project": "p", "entity": "sk-team"},
    "database": {
        "url": "postgresql://bob:hunter2@db.example.com:5432/runs",
        "public_url": "https://example.com:8443/a@b",
        "user_url": "ssh://git@example.com/repo",
        "dsn": "host=db",
    },
    "loggers": [{"api_key": "k", "host": "h"}, {"password": ["a", ["b", 3]]}],
    "callbacks": ("a", JWT),
    "certificates": {"client": PEM, "ca": "-----BEGIN CERTIFICATE-----"},
    "note": f"login with {HF} please",
    "key": "value",
    "primary_key": "id",
    "keyboard": "qwerty",
    "secretary": "Ann",
    "sk_model": "sk-learn",
    "aws": {"id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "k", "region": "us-east-1"},
    "blob": b"mysql://u:p@h/db",
    "bytes": b"\xff\xfe",
    "none_token": None,
    "learning_rate": 0.1,
}

REDACTED_CONFIGURATION = CONFIGURATION | {
    "model": CONFIGURATION["model"] | {"hf_token": REDACTED, "token": REDACTED},
    "api_key": REDACTED,
    "OPENAI_API_KEY": REDACTED,
    "wandb": {"apiKey": REDACTED, "project": "p", "entity": "sk-team"},
    "database": CONFIGURATION["database"] | {"url": REDACTED, "dsn": REDACTED},
    "loggers": [{"api_key": REDACTED, "host": "h"}, {"password": [REDACTED, [REDACTED, 3]]}],
    "callbacks": ["a", REDACTED],
    "certificates": {"client": REDACTED, "ca": "-----BEGIN CERTIFICATE-----"},
    "note": REDACTED,
    "aws": {"id": REDACTED, "secret_access_key": REDACTED, "region": "us-east-1"},
    "blob": REDACTED,
}


def test_a_real_configuration_is_redacted_where_it_must_be():
    """Of the configuration of a language model, the secrets are replaced and nothing else."""
    assert REDACTED_CONFIGURATION == Redactor().redact("", CONFIGURATION)


def test_the_given_configuration_is_not_changed():
    """Redaction works on a copy: the trainer's own dict keeps its secrets."""
    given_data = {"a": {"password": "x"}, "b": [{"token": "y"}]}
    Redactor().redact("", given_data)
    assert given_data == {"a": {"password": "x"}, "b": [{"token": "y"}]}


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "TOKEN",
        "hf_token",
        "hfToken",
        "HFToken",
        "auth-token",
        "auth/token",
        "auth.token",
        "authtoken",
        "client_secret",
        "clientSecret",
        "password",
        "dbPassword",
        "mysql_pwd",
        "passwd",
        "api_key",
        "api-key",
        "apikey",
        "ApiKey",
        "APIKey",
        "API_KEY",
        "openai.api.key",
        "private_key",
        "privateKey",
        "accessKey",
        "aws_access_key",
        "credential",
        "gcp_credentials",
        "Authorization",
        "proxy-authorization",
        "bearer",
        "sentry_dsn",
        "é_token",
        "hf_token_2",
        "password1",
        "apiKey2",
    ],
)
def test_keys_that_name_secrets(key):
    """The last word of a key decides, however words are joined."""
    assert Redactor().redact(key, "x") == REDACTED
    assert Redactor().redact("", {"outer": {key: "x"}}) == {"outer": {key: REDACTED}}


@pytest.mark.parametrize(
    "key",
    [
        "",
        "tokens",
        "max_tokens",
        "tokenizer",
        "tokenizer_name",
        "token_count",
        "eos_token_id",
        "pad_token",
        "padToken",
        "mask_token",
        "image_token",
        "sep.token",
        "pad_token_1",
        "word_delimiter_token",
        "2",
        "secret_sauce",
        "password_length",
        "key",
        "sort_key",
        "hot_key",
        "apis",
        "dsn_pool",
        "bearer_format",
        "...",
    ],
)
def test_keys_that_name_none(key):
    """A word elsewhere in the key, or an entry of a vocabulary, names no secret."""
    assert Redactor().redact(key, "x") == "x"


@pytest.mark.parametrize(
    "value",
    [
        "https://user:pw@example.com",
        "redis://:pw@localhost:6379/0",
        "see mongodb+srv://u:p%40w@c.example.net/?x=1",
        "POSTGRES://U:P@H",
        HF,
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "sk-proj-abc_DEF-0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        PEM,
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----",
        JWT,
        f"Bearer {JWT}",
    ],
)
def test_values_that_look_like_secrets(value):
    """A secret is known by its own form too, as text, as bytes, and inside of text."""
    assert [REDACTED] * 3 == Redactor().redact("note", [value, value.encode(), f"({value})"])


@pytest.mark.parametrize(
    "value",
    [
        "https://example.com:8080/a:b@c",
        "https://git@example.com",
        "s3://bucket/path@v1",
        "hf_causal_lm",
        "hf_llama3_8b_instruct",
        "risk-12345678",
        "task-12345678",
        "sk-learn",
        "-----BEGIN PUBLIC KEY-----",
        "eyJhbGciOiJIUzI1NiJ9",
        "a:b@c",
        "",
    ],
)
def test_values_that_do_not(value):
    """Addresses without a password, names of models and public keys are no secrets."""
    assert value == Redactor().redact("note", value)


@pytest.mark.parametrize("value", [1, 0.5, True, None, {}, [], ()])
def test_only_text_is_redacted(value):
    """Numbers, truth values and empty containers are never secrets."""
    found = Redactor().redact("password", value)
    assert (list(value) if isinstance(value, tuple) else value) == found


def test_more_keys_can_be_named():
    """Patterns in `also` redact by the dotted key or by its last part, in any case."""
    redactor = Redactor(also=["*_path", "Data.Bucket"])
    data = {"save_PATH": "a", "data": {"bucket": "b", "load_path": "c", "name": "d"}, "bucket": "e"}
    assert {
        "save_PATH": REDACTED,
        "data": {"bucket": REDACTED, "load_path": REDACTED, "name": "d"},
        "bucket": "e",
    } == redactor.redact("", data)


def test_keys_can_be_excepted():
    """What matches `allow` is never redacted, whatever its value looks like and `also` says."""
    redactor = Redactor(also=["model.*"], allow=["MODEL.token", "url"])
    data = {"model": {"token": "a", "name": "b"}, "db": {"url": "x://u:p@h"}, "token": "c"}
    assert {
        "model": {"token": "a", "name": REDACTED},
        "db": {"url": "x://u:p@h"},
        "token": REDACTED,
    } == redactor.redact("", data)


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=60)
@given(json_data)
def test_redaction_keeps_the_form_and_is_done_once(data):
    """Whatever the data, redacting what is redacted changes nothing, and no text of a secret key stays."""
    redactor = Redactor(also=["*"])
    once = redactor.redact("", {"k": data})
    assert once == redactor.redact("", once)
    assert all(text == REDACTED for text in texts(once))


def texts(data):
    """The strings and bytes in nested data."""
    if isinstance(data, dict):
        return [text for item in data.values() for text in texts(item)]
    if isinstance(data, list):
        return [text for item in data for text in texts(item)]
    return [data] if isinstance(data, (str, bytes)) else []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("cannot log in: password=hunter2, user=x", "cannot log in: password=[redacted], user=x"),
        ("password: hunter2", "password: [redacted]"),
        ('{"api_key": "abc", "lr": 0.1}', '{"api_key": "[redacted]", "lr": 0.1}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("max_tokens=5 pad_token=<pad> tokenizer: gpt2", "max_tokens=5 pad_token=<pad> tokenizer: gpt2"),
        ("if token == other: return", "if token == other: return"),
        ("no token", "no token"),
    ],
)
def test_in_free_text_what_a_key_names_is_replaced(told: str, shown: str) -> None:
    """The rest of an exception's message or of a program's log line stays readable."""
    assert shown == Redactor().redact_text(told)
