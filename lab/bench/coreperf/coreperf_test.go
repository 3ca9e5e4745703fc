package coreperf

import "testing"

func BenchmarkCores(b *testing.B) {
	for _, c := range AllCases() {
		b.Run(c.Name, func(b *testing.B) {
			work, err := c.Prepare()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := work(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
