package script_test

import (
	"testing"

	"atoll.dev/atoll/internal/interpret/script"
)

func benchmarkOf(b *testing.B, c *script.Customization, ask func(*script.Customization) error) {
	b.ReportAllocs()
	for b.Loop() {
		if err := ask(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLuaHealth(b *testing.B) {
	wc := object(b, flink)
	benchmarkOf(b, read(b, "karmada.yaml"), func(c *script.Customization) error { _, _, err := c.Health(wc); return err })
}

func BenchmarkLuaRevise(b *testing.B) {
	wc := object(b, flink)
	benchmarkOf(b, read(b, "karmada.yaml"), func(c *script.Customization) error { _, _, err := c.Revise(wc, 5); return err })
}

func BenchmarkLuaArgoHealth(b *testing.B) {
	wc := object(b, flink)
	benchmarkOf(b, read(b, "certificate.lua"), func(c *script.Customization) error { _, _, err := c.Health(wc); return err })
}

func BenchmarkCELHealth(b *testing.B) {
	wc := object(b, flink)
	benchmarkOf(b, read(b, "interpreter.yaml"), func(c *script.Customization) error { _, _, err := c.Health(wc); return err })
}

func BenchmarkCELRevise(b *testing.B) {
	wc := object(b, flink)
	benchmarkOf(b, read(b, "interpreter.yaml"), func(c *script.Customization) error { _, _, err := c.Revise(wc, 5); return err })
}
