"""The builder of decoding programs and its interpreter agree on the instructions."""

import numpy as np
import torch

from seqloom.fused import program as builder
from seqloom.kernels import program as interpreter

OPCODES = ("NORM", "LINEAR", "LINEAR_INT8", "ADD", "WRITE_CACHE", "ATTEND", "ACTIVATE", "GATE", "ROTATE")


def test_the_opcodes_are_those_of_the_interpreter():
    assert [getattr(builder, name) for name in OPCODES] == [getattr(interpreter, name) for name in OPCODES]
    assert len(interpreter.OP_SIZES) == len(OPCODES)


def test_every_instruction_has_the_length_that_the_interpreter_expects():
    program = builder.Program(2, torch.zeros(1, dtype=torch.float32))
    x = program.buffer(8)
    weight = torch.zeros(8, 8, dtype=torch.float32)
    panels = torch.zeros(1, 4, 16, 2, dtype=torch.int8)
    vector = torch.zeros(16, dtype=torch.float32)
    emitted = {
        "NORM": lambda: program.emit_norm(8, vector, None, 1e-5, x, x, True),
        "LINEAR": lambda: program.emit_linear(weight, None, x, x),
        "LINEAR_INT8": lambda: program.emit_linear_int8((8, 8), panels, vector, vector, x, x),
        "ADD": lambda: program.emit_add(8, x, x),
        "WRITE_CACHE": lambda: program.emit_cache_write(1, 8, 8, x, x, 32),
        "ATTEND": lambda: program.emit_attention((1, 1, 8, 8), 1.0, x, 32, x),
        "ACTIVATE": lambda: program.emit_activation(8, "relu", x),
        "GATE": lambda: program.emit_gate(4, x, x),
        "ROTATE": lambda: program.emit_rotary(1, 8, False, x, 32),
    }
    assert tuple(emitted) == OPCODES
    for opcode, emit in enumerate(emitted.values()):
        before = len(program.instructions)
        emit()
        instruction = program.instructions[before:]
        assert instruction[0] == opcode
        assert len(instruction) == interpreter.OP_SIZES[opcode]
    program.finish()
    assert program.code.dtype == np.int64
