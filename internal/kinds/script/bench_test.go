package script_test

import (
	"testing"

	gopherlua "github.com/yuin/gopher-lua"

	"atoll.dev/atoll/internal/kinds/script"
)

func benchmarkQuestion(b *testing.B, c *script.Customization, ask func(*script.Customization) error) {
	b.ReportAllocs()
	for b.Loop() {
		if err := ask(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLuaHealth(b *testing.B) {
	wc := parseObject(b, flinkYAML)
	benchmarkQuestion(b, readTestdata(b, "karmada.yaml"), func(c *script.Customization) error { _, _, err := c.AssessHealth(wc); return err })
}

func BenchmarkLuaRevise(b *testing.B) {
	wc := parseObject(b, flinkYAML)
	benchmarkQuestion(b, readTestdata(b, "karmada.yaml"), func(c *script.Customization) error { _, _, err := c.ReviseReplicas(wc, 5); return err })
}

func BenchmarkLuaArgoHealth(b *testing.B) {
	wc := parseObject(b, flinkYAML)
	benchmarkQuestion(b, readTestdata(b, "certificate.lua"), func(c *script.Customization) error { _, _, err := c.AssessHealth(wc); return err })
}

func BenchmarkCELHealth(b *testing.B) {
	wc := parseObject(b, flinkYAML)
	benchmarkQuestion(b, readTestdata(b, "interpreter.yaml"), func(c *script.Customization) error { _, _, err := c.AssessHealth(wc); return err })
}

func BenchmarkCELRevise(b *testing.B) {
	wc := parseObject(b, flinkYAML)
	benchmarkQuestion(b, readTestdata(b, "interpreter.yaml"), func(c *script.Customization) error { _, _, err := c.ReviseReplicas(wc, 5); return err })
}

// BenchmarkHostilePattern compares the bounded patterns of this package with those of
// gopher-lua, whose cost is a power of the length.
func BenchmarkHostilePattern(b *testing.B) {
	const source = `return {status = tostring(("a"):rep(100):find((".-"):rep(4) .. "b"))}`
	b.Run("own", func(b *testing.B) {
		list, err := script.CompileFile("hostile.lua", []byte(source))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := list[0].AssessHealth(map[string]any{}); err == nil {
				b.Fatal("the pattern is not bounded")
			}
		}
	})
	b.Run("gopher-lua", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			L := gopherlua.NewState()
			if err := L.DoString(source); err != nil {
				b.Fatal(err)
			}
			L.Close()
		}
	})
}
