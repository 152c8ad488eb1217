"""The three worker processes of the Procfile, and three plain ones with the same command lines beside them."""

from dataclasses import dataclass

from bench.plain import QUEUES
from bench.stage import Workers
from gateway.supervisor import Child

# Queue and concurrency of the Procfile's lines: messages, agent, delivery.
OURS = (("messages", "messages,upkeep", 20), ("agent", "agent.scripted", 200), ("delivery", "delivery", 50))


@dataclass(frozen=True)
class Lineup:
    ours: list[Child]
    plain: list[Child]


def start_lineup(workers: Workers) -> Lineup:
    ours = [workers.ours(*line) for line in OURS]
    plain = [workers.plain(queue, queue, concurrency) for queue, (_, _, concurrency) in zip(QUEUES, OURS, strict=True)]
    return Lineup(ours, plain)
