"""Memories found by meaning, by words, and by both; contradictions settled; drift made visible.

    python examples/semantic_memory.py

The embedder is a stand-in that counts the topics it knows, so that nothing is downloaded; `index["embed"]` takes any
function, coroutine, LangChain `Embeddings`, or the name of a model such as "openai:text-embedding-3-small".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from stepvault.stores.memories import Memories, RetrievalReport
from stepvault.stores.sqlite import SqliteStore

TOPICS = {
    "food": "eat dinner lunch pizza soup vegetarian cook restaurant hungry meal",
    "travel": "travel train flight plane hotel trip journey airport seat",
    "music": "music concert piano song band jazz listen",
    "sport": "sport run marathon bike football match swim",
}
MEMORIES = [
    ("Ada is vegetarian and likes to cook soup", "diet", {"source": "chat", "year": 2024}),
    ("On a train or a flight Ada wants a window seat", "seat", {"source": "chat", "year": 2025}),
    ("Ada will run the Lisbon marathon", "race", {"source": "mail", "year": 2025}),
    ("Ada plays jazz on the piano", "music", {"source": "mail", "year": 2023}),
]


def embed(texts: Sequence[str]) -> list[list[float]]:
    """One number per topic: how many of its words the text has."""
    counted = []
    for text in texts:
        words = text.lower().replace("?", "").split()
        counted.append([0.01 + sum(word in topic.split() for word in words) for topic in TOPICS.values()])
    return counted


def main() -> None:
    index = {"dims": len(TOPICS), "embed": embed, "fields": ["text"]}
    with SqliteStore.from_conn_string(":memory:", index=index) as store:
        memories = Memories(store)
        for text, about, data in MEMORIES:
            memories.upsert(text, about=about, data=data, user="ada", tags=[str(data["source"])])
        memories.upsert("Bob is always hungry for pizza", about="diet", user="bob")

        def show(title: str, query: str, **search: Any) -> RetrievalReport:
            found = memories.search(query, user="ada", limit=2, **search)
            print(f"{title}\n" + "\n".join(f"  {memory.score:6.3f}  {memory.text}" for memory in found))
            return found.report

        reports = [
            show("By meaning: where is she hungry for a meal?", "hungry meal restaurant"),
            show("By words: Lisbon", "lisbon", mode="text"),
            show("By both: journey Lisbon", "journey lisbon", mode="hybrid"),
            show(
                "By meaning, from mails of 2024 or later", "hotel trip", tags=["mail"], filter={"year": {"$gte": 2024}}
            ),
            show("Only what fits well", "concert song", min_score=0.9),
            show("Only what is fresh", "concert song", max_age=timedelta(days=30)),
        ]

        memories.upsert("Ada eats fish again", about="diet", user="ada", tags=["chat"])
        print("The latest about her diet stands alone")
        print("\n".join(f"  {memory.text}" for memory in memories.list(user="ada", about="diet")))

        memories.put_summary(
            "She asked about trains, then food.", thread_id="t", checkpoint_ids=["1f0", "1f1"], user="ada"
        )
        (summary,) = memories.summaries("t", user="ada")
        print(f"A summary of checkpoints {', '.join(summary.checkpoint_ids)}: {summary.text}")
        print(f"All searches: {RetrievalReport.combined(reports)}")


if __name__ == "__main__":
    main()
