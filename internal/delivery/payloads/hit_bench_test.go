package payloads

import "testing"

// BenchmarkCacheHit measures a row whose payload is in the cache.
func BenchmarkCacheHit(b *testing.B) {
	cache := NewCache(b.Context(), newTestRenderer(newTestTables()), 1<<20, newTestMetrics())
	row := testRow("tokyo")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cache.GetOrRender(row); err != nil {
			b.Fatal(err)
		}
	}
}
