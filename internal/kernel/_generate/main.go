// Command _generate writes the AVX2 assembly of package kernel:
//
//	go run . -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg kernel
//
// Each function is a kernel.Func. It steps through its operands by 4 vectors, by
// one, and through the rest by half of what it did before, down to one element.
// All steps do the same to an element, so that it does not matter where it stands.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	for _, k := range kernels() {
		k.generate()
	}
	Generate()
}

// A kernel is one function.
type kernel struct {
	name, doc string
	elem      int // bytes of an element
	// memory is how a vector of elements is loaded and stored; a half is
	// computed as a float32.
	memory memory
	// prepare makes the constants that combine uses.
	prepare func() []reg.VecVirtual
	combine combination
}

// A vector says how wide the registers of a step are.
type vector struct{ y bool }

func (v vector) new() reg.VecVirtual {
	if v.y {
		return YMM()
	}
	return XMM()
}

// as is a constant in the width of the step.
func (v vector) as(r reg.VecVirtual) reg.Register {
	if v.y {
		return r
	}
	return r.AsX()
}

func (k kernel) generate() {
	TEXT(k.name, NOSPLIT, "func(dst, a, b []byte)")
	Doc(k.name + " " + k.doc)
	Pragma("noescape")
	n := Load(Param("dst").Len(), GP64())
	for _, name := range []string{"a", "b"} {
		l := Load(Param(name).Len(), GP64())
		CMPQ(l, n)
		JLT(LabelRef("short"))
	}
	dst := Load(Param("dst").Base(), GP64())
	a, b := Load(Param("a").Base(), GP64()), Load(Param("b").Base(), GP64())
	var constants []reg.VecVirtual
	if k.prepare != nil {
		constants = k.prepare()
	}
	full := k.memory.full
	step := func(bytes, at int) {
		v := vector{y: bytes == full}
		x := k.memory.load(v, bytes, Mem{Base: a, Disp: at})
		y := k.memory.load(v, bytes, Mem{Base: b, Disp: at})
		k.memory.store(v, bytes, k.combine(v, x, y, constants), Mem{Base: dst, Disp: at})
	}
	advance := func(bytes int) {
		for _, p := range []reg.Register{a, b, dst} {
			ADDQ(U32(bytes), p)
		}
	}
	loop := func(name string, bytes, times int) {
		SUBQ(U32(bytes*times), n)
		JLT(LabelRef(name + "Done"))
		Label(name)
		for i := range times {
			step(bytes, i*bytes)
		}
		advance(bytes * times)
		SUBQ(U32(bytes*times), n)
		JGE(LabelRef(name))
		Label(name + "Done")
		ADDQ(U32(bytes*times), n)
	}
	loop("four", full, 4)
	loop("one", full, 1)
	for bytes := full / 2; bytes >= k.elem; bytes /= 2 {
		next := fmt.Sprintf("less%d", bytes)
		TESTQ(U32(bytes), n)
		JZ(LabelRef(next))
		step(bytes, 0)
		if bytes > k.elem {
			advance(bytes)
		}
		Label(next)
	}
	VZEROUPPER()
	RET()
	Label("short")
	// The arguments of short are in the same places.
	Instruction(&ir.Instruction{Opcode: "JMP", Operands: []Op{LabelRef("·short(SB)")}, IsTerminal: true})
}
