package datatype

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// BenchmarkPackColumn packs one column of a matrix of 8 columns; "by hand" is the
// loop that a program would write instead.
func BenchmarkPackColumn(b *testing.B) {
	for _, rows := range []int{16, 1000} {
		const columns = 8
		mem := make([]byte, rows*columns*8)
		packed := make([]byte, rows*8)
		column := must(Vector(rows, 1, columns, Of(Float64)))
		numbers := make([]float64, rows*columns)
		into := make([]float64, rows)
		b.Run(fmt.Sprintf("rows=%d/pack", rows), func(b *testing.B) {
			for b.Loop() {
				column.Pack(packed, mem, 0)
			}
		})
		b.Run(fmt.Sprintf("rows=%d/by hand", rows), func(b *testing.B) {
			for b.Loop() {
				for i := range into {
					into[i] = numbers[i*columns]
				}
			}
		})
		b.Run(fmt.Sprintf("rows=%d/unpack", rows), func(b *testing.B) {
			for b.Loop() {
				column.Unpack(mem, packed, 0)
			}
		})
	}
}

// BenchmarkPackStruct packs structs with padding, field by field.
func BenchmarkPackStruct(b *testing.B) {
	const n = 1000
	o := must(Struct([]int{1, 1}, []int{0, 8}, []*Type{Of(Int32), Of(Float64)}))
	mem, packed := make([]byte, n*16), make([]byte, n*12)
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			o.Pack(packed, mem, 0)
		}
	})
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			for i := range n {
				binary.NativeEndian.PutUint32(packed[12*i:], binary.NativeEndian.Uint32(mem[16*i:]))
				binary.NativeEndian.PutUint64(packed[12*i+4:], binary.NativeEndian.Uint64(mem[16*i+8:]))
			}
		}
	})
}
