"""What a statement looks at, as the server says."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from stepvault._core.plan import Stmt
from stepvault._drivers import postgres_cursors


def looked_at(connection: psycopg.Connection[Any], statement: Stmt) -> int:
    """Rows of our tables that a statement looks at; what it does is taken back."""
    with connection.transaction(force_rollback=True):
        cursor = postgres_cursors.cursor(connection)
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}".encode(), statement.args)
        ((found,),) = cursor.fetchall()
    count, plans = 0, [plan["Plan"] for plan in (json.loads(found) if isinstance(found, str) else found)]
    for plan in plans:
        plans += plan.get("Plans", [])
        if "Scan" in plan["Node Type"] and "Relation Name" in plan:
            rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
            count += round(rows * plan["Actual Loops"])
    return count
