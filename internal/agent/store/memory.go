package store

import (
	"fmt"
	"sync"

	"atoll.dev/atoll/internal/agent/ownership"
)

const (
	// DefaultMemoryBytes is the most memory that stored values may take. Open can read so much again: the
	// Secrets of a value have fewer bytes than the value takes.
	DefaultMemoryBytes = maxPacked
	// objectCost is reserved for each object of a Bundle: its record, and what the agent observes of it.
	objectCost = 3 << 10
)

// MemoryFullError is returned for a Bundle for which there is no memory. The former state of the Bundle stays.
type MemoryFullError struct {
	// more is what the Bundle would take in addition, and used and most what all takes and may take, in bytes.
	more, used, most int
}

// Error returns the sizes.
func (e *MemoryFullError) Error() string {
	return fmt.Sprintf("the agent keeps at most %d MiB of what its hub sends, and has %d MiB; this needs %d KiB more: place less in the cluster, or raise the memory limit of the agent's pod",
		e.most>>20, e.used>>20, (e.more+1<<10-1)>>10)
}

// memoryCost is what a stored value takes.
type memoryCost struct {
	bytes   int // of Bundles, and of reports
	objects int // of Bundles
	records int // bytes of records
}

func memoryCostOf(value any, weight int) memoryCost {
	switch v := value.(type) {
	case Bundle:
		return memoryCost{bytes: weight, objects: len(v.Holding.Manifest.Items) + len(v.Holding.Kept)}
	case []ownership.Record:
		return memoryCost{records: weight}
	}
	return memoryCost{bytes: weight}
}

// memoryBudget counts the memory of all stored values. Only Bundles are refused: the agent must store what it
// did in the member.
type memoryBudget struct {
	mu   sync.Mutex
	most int
	sum  memoryCost
}

// totalBytes returns the memory of all values. Records take what is reserved for objects first.
func (c memoryCost) totalBytes() int { return c.bytes + max(c.objects*objectCost, c.records) }

// setMost changes the most that all values may take.
func (m *memoryBudget) setMost(most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = most
}

// hasRoom reports whether all values may take so much more.
func (m *memoryBudget) hasRoom(more int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum.totalBytes()+more <= m.most
}

// replaceCost counts a value in place of an earlier one.
func (m *memoryBudget) replaceCost(old, by memoryCost) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum = m.sum.withReplaced(old, by)
}

func (c memoryCost) withReplaced(old, by memoryCost) memoryCost {
	return memoryCost{c.bytes - old.bytes + by.bytes, c.objects - old.objects + by.objects, c.records - old.records + by.records}
}

// checkCost returns an error when a value would take more memory than the earlier one, and there is not so much.
// Removals have an eighth more: a Bundle that was refused must be removable.
func (m *memoryBudget) checkCost(old, by memoryCost, removes bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.sum.totalBytes()
	more := m.sum.withReplaced(old, by).totalBytes() - used
	most := m.most
	if removes {
		most += most / 8
	}
	if more <= 0 || used+more <= most {
		return nil
	}
	return &MemoryFullError{more: more, used: used, most: most}
}
