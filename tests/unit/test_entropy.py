"""Random bytes are never drawn twice: not by threads, not by the child of a fork."""

import os
import threading
import uuid

from otel_logger_exporters.entropy import random_bytes, random_uid


def test_as_many_as_are_asked_for_come():
    """Identifiers have 8 or 16 bytes."""
    assert [8, 16] == [len(random_bytes(size)) for size in (8, 16)]


def test_an_identity_is_a_uuid_of_chance():
    """So whoever reads it takes it for one: version 4, of the variant of RFC 9562."""
    made = uuid.UUID(hex=random_uid())
    assert (4, uuid.RFC_4122) == (made.version, made.variant)
    assert made.hex != random_uid()


def test_nothing_comes_twice():
    """Threads that draw at once draw different bytes, also where the pool is filled anew."""
    drawn = []

    def draw():
        drawn.extend(random_bytes(16) for _ in range(2000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 8000 == len(drawn) == len(set(drawn))


def test_the_child_of_a_fork_draws_other_bytes_than_its_parent():
    """What was fetched before the fork is the parent's."""
    random_bytes(8)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, random_bytes(64))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 64) != random_bytes(64)
    os.close(reader)
    os.close(writer)
