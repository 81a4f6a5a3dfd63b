"""The graph room: what could happen, as the developer wrote it down."""

from branchpoint.graph._cancelled import RequestCancelled
from branchpoint.graph._choice import find_handler, find_response_handler
from branchpoint.graph._coded import CodedExecutor
from branchpoint.graph._containers import Copier, unchanged
from branchpoint.graph._context import Port, SyncWorkflowContext, WorkflowContext, port_of
from branchpoint.graph._describe import describe
from branchpoint.graph._difference import explain_difference
from branchpoint.graph._draw import to_digraph, to_mermaid
from branchpoint.graph._edges import (
    Case,
    Default,
    Edge,
    EdgeCondition,
    EdgeGroup,
    EdgeKind,
    Selection,
    SwitchBranch,
    callable_name,
    is_name,
)
from branchpoint.graph._executor import Executor
from branchpoint.graph._factory import Factory
from branchpoint.graph._function import FunctionExecutor, executor
from branchpoint.graph._graph import DEFAULT_MAX_ITERATIONS, Graph, OutputClass, Undelivered
from branchpoint.graph._handlers import handler, response_handler
from branchpoint.graph._nesting import (
    NestingExecutor,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    interceptors,
)
from branchpoint.graph._runscope import check_configuration, definition_copy, dehydrate, hydrate, spawn
from branchpoint.graph._signature import child_graph, signature, signature_hash
from branchpoint.graph._specs import HandlerSpec, ResponseSpec
from branchpoint.graph._state import StateField, scratch, state
from branchpoint.graph._statekey import (
    ABSENT,
    Absent,
    Reducer,
    StateKey,
    Write,
    append,
    fold,
    last_write,
    merge,
)
from branchpoint.graph._typing import compatible, matches, readable
from branchpoint.graph._validate import validate_graph

__all__ = [
    "ABSENT",
    "Absent",
    "Case",
    "CodedExecutor",
    "Copier",
    "DEFAULT_MAX_ITERATIONS",
    "Default",
    "Edge",
    "EdgeCondition",
    "EdgeGroup",
    "EdgeKind",
    "Executor",
    "Factory",
    "FunctionExecutor",
    "Graph",
    "HandlerSpec",
    "NestingExecutor",
    "OutputClass",
    "Port",
    "Reducer",
    "RequestCancelled",
    "ResponseSpec",
    "Selection",
    "StateField",
    "StateKey",
    "SubWorkflowRequestMessage",
    "SubWorkflowResponseMessage",
    "SwitchBranch",
    "SyncWorkflowContext",
    "Undelivered",
    "WorkflowContext",
    "Write",
    "append",
    "callable_name",
    "check_configuration",
    "child_graph",
    "compatible",
    "definition_copy",
    "dehydrate",
    "describe",
    "executor",
    "explain_difference",
    "find_handler",
    "find_response_handler",
    "fold",
    "handler",
    "hydrate",
    "interceptors",
    "is_name",
    "last_write",
    "matches",
    "merge",
    "port_of",
    "readable",
    "response_handler",
    "scratch",
    "signature",
    "signature_hash",
    "spawn",
    "state",
    "to_digraph",
    "to_mermaid",
    "unchanged",
    "validate_graph",
]
