"""The configuration of a language model's training, as such are written: its secrets are replaced and nothing else."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_logger.hyperparameters import HyperparameterSet
from otel_logger.redaction import REDACTED, Redactor
from otel_logger.values import plain
from otel_logger_exporters.clock import SystemClock
from otel_logger_exporters.ledger import Ledger

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
HF = "hf_" + "aBcDeFgHiJ" * 3 + "kLmN"
"""As Hugging Face makes them: letters alone."""
GIT_HASH = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

CONFIGURATION: dict[str, Any] = {
    "run_name": "mpt-7b-finetune",
    "seed": 17,
    "commit": GIT_HASH,
    "max_seq_len": 2048,
    "global_train_batch_size": 1024,
    "device_train_microbatch_size": "auto",
    "tokens_per_batch": "2097152",
    "tokenizer_name": "EleutherAI/gpt-neox-20b",
    "tokenizer": {
        "name": "EleutherAI/gpt-neox-20b",
        "kwargs": {"model_max_length": 2048, "use_auth_token": True, "padding_side": "left"},
        "pad_token": "<|padding|>",
        "pad_token_id": "1",
        "eos_token": "<|endoftext|>",
        "bos_token": "<|endoftext|>",
        "unk_token": "<unk>",
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "token_type_ids": "none",
        "eos_token_id": 0,
    },
    "model": {
        "name": "hf_causal_lm",
        "pretrained_model_name_or_path": "hf_t5_base_v2",
        "teacher": "sk-learn-model-2024",
        "revision": GIT_HASH,
        "loss_fn": "fused_crossentropy",
        "attn_config": {"attn_impl": "flash", "alibi": True, "qk_ln": None},
        "generation": {"max_new_tokens": "256", "stop_token": "</s>", "tokens": "all"},
    },
    "train_loader": {
        "dataset": {
            "remote": "s3://bucket/c4?versionId=abc",
            "local": "/tmp/c4",
            "streams": [
                {"remote": "s3://bucket/a", "proportion": 0.5},
                {"remote": "https://reader:hunter2@data.example.com/b", "proportion": 0.5},
            ],
            "shuffle_algo": "py1s",
        },
        "num_workers": 8,
        "secretary": "Ann",
        "passwordless": "yes",
        "monkey": "see",
    },
    "load_path": "s3://bucket/checkpoints/ep1-ba100-rank0.pt",
    "save_folder": "s3://bucket/{run_name}/checkpoints",
    "optimizer": {"name": "decoupled_adamw", "lr": 6.0e-4, "betas": [0.9, 0.95], "eps": 1.0e-08},
    "hf_token": HF,
    "huggingface": {"token": "anything", "login": f"huggingface-cli login --token {HF} --add-to-git"},
    "loggers": {
        "wandb": {"project": "llm", "entity": "sk-team", "api_key": GIT_HASH},
        "mlflow": {"tracking_uri": "databricks", "experiment_name": "token-study", "run_name": "key-7"},
        "otel": {"headers": {"Authorization": "Basic dXNlcjpwdw==", "x-api-key": "k", "x-scope-orgid": "team"}},
    },
    "env": {
        "WANDB_API_KEY": "k",
        "OPENAI_API_KEY": "sk-proj-abc_DEF-0123456789",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_REGION": "us-east-1",
        "HF_HOME": "/cache/hf_home",
        "TOKENIZERS_PARALLELISM": "false",
        "SENTRY_DSN": "https://public@sentry.example.com/1",
    },
    "database": {"url": "postgresql://bob:hunter2@db:5432/runs", "pool": "redis://localhost:6379/0"},
    "command": ["composer", "train.py", "--key=x", "api_key sk-0123456789abcdef0123", f"curl -H 'Bearer {JWT}'"],
    "tls": {"client": PEM, "ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"},
    "accounts": {f"deploy-{HF}": "team", "sk-0123456789abcdef0123": {"quota": 5}},
    "clientSecret": "s",
    "sshPrivateKey": "path/or/key",
    "minio": {"secret_key": "s", "access_key": "a", "bucket": "b"},
    "no_token": None,
    "use_password": False,
}

SECRETS = {
    "train_loader.dataset.streams.1.remote",
    "hf_token",
    "huggingface.token",
    "huggingface.login",
    "loggers.wandb.api_key",
    "loggers.otel.headers.Authorization",
    "loggers.otel.headers.x-api-key",
    "env.WANDB_API_KEY",
    "env.OPENAI_API_KEY",
    "env.AWS_ACCESS_KEY_ID",
    "env.AWS_SECRET_ACCESS_KEY",
    "env.SENTRY_DSN",
    "database.url",
    "command.3",
    "command.4",
    "tls.client",
    "clientSecret",
    "sshPrivateKey",
    "minio.secret_key",
    "minio.access_key",
}
"""The only leaves that are secrets."""


@pytest.fixture
def ledger() -> Ledger:
    """Return a ledger of the test's own."""
    return Ledger(SystemClock(), logging.getLogger("otel_logger"))


def leaves(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested data with their dotted paths, items of lists by number."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None or not data:
        yield ".".join(path), data
        return
    for key, item in items:
        yield from leaves(item, (*path, str(key)))


def test_exactly_the_secrets_are_replaced() -> None:
    """Every leaf that is a secret reads `[redacted]`, every other is as it was; keys that are secrets are hidden."""
    given_leaves = dict(leaves({key: value for key, value in CONFIGURATION.items() if key != "accounts"}))
    redacted = Redactor().redact("", plain(CONFIGURATION))
    accounts = redacted.pop("accounts")

    assert {path: REDACTED if path in SECRETS else value for path, value in given_leaves.items()} == dict(
        leaves(redacted)
    )
    assert given_leaves.keys() >= SECRETS
    assert {REDACTED: "team", f"{REDACTED} 2": {"quota": 5}} == accounts


def test_no_secret_is_left_in_what_is_recorded(ledger: Ledger) -> None:
    """Neither the event, nor the resource, nor a point has one."""
    hyperparameters = HyperparameterSet(Redactor(), ledger)
    hyperparameters.add(CONFIGURATION)
    everything = repr([hyperparameters.nested(), hyperparameters.attributes(), hyperparameters.measure()])

    secrets = ("hunter2", HF, JWT, "AKIA", "wJalr", "MIIEv", "sk-0123", "dXNl")
    assert [] == [secret for secret in secrets if secret in everything]


def test_a_secret_at_the_end_of_a_text_that_is_cut_does_not_show() -> None:
    """A password is known even where the text is cut before the `@` behind it."""
    start = "x" * (8192 - len(" postgresql://bob:hunter2"))
    cut = plain(f"{start} postgresql://bob:hunter2-and-more@db/runs and so on")

    assert "hunter2…" in cut
    assert REDACTED == Redactor().redact("note", cut)


@pytest.mark.parametrize(
    "value",
    [
        HF,
        f"{HF}.",
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "sk-0123456789abcdef0123",
        "sk-abcdefghijklmno1",
        "sk-ant-api03-abc_DEF-0123",
        "sk-or-v1-0123456789",
        "sk-team-0123456789abcdef0123",
        "http://u:8080x@host",
    ],
)
def test_secrets_by_their_form(value: str) -> None:
    """Keys of services are known without a telling name."""
    assert [REDACTED] * 2 == Redactor().redact("note", [value, f"see {value} there"])


@pytest.mark.parametrize(
    "value",
    [
        "sk-learn-model-2024",
        "sk-name_of_a_model_v2_large_2024",
        "sk-internationalization",
        "hf_t5_base_v2",
        "hf_hub_download",
        "hf_meta_llama_3_70b_instruct",
        GIT_HASH,
        "https://example.com:8080?mail=a@b.org",
        "https://example.com:8080/a:b@c",
        "akiaxxxxxxxxxxxxxxxx",
        "eyJhbGciOiJIUzI1NiJ9",
        "http://${HOST}/x:y@z",
        "ghp_model_v2",
    ],
)
def test_what_only_resembles_a_secret(value: str) -> None:
    """Names of models, hashes and addresses without a password stay."""
    assert value == Redactor().redact("note", value)


@given(st.text(st.sampled_from("abk:/@-_. 1sfheyJ"), max_size=60))
def test_redaction_of_any_text_is_final(value: str) -> None:
    """What is redacted stays so, and what is not stays whole."""
    once = Redactor().redact("note", {value: value})

    assert once == Redactor().redact("note", once)
    assert {*once.values()} <= {value, REDACTED}
