package changewindow

import (
	"sync"
	"time"
)

// unreadableZone is the number of the time zones that the hub does not have, which admission refuses.
const unreadableZone Mask = 1<<(32-MaxWindows) - 1

// clusterZones are the time zones of clusters, by which Masks can be compared. The IANA database bounds them.
var clusterZones = zoneTable{numbers: map[string]Mask{}}

// zoneTable numbers time zones from 1 on. A zone keeps its number while the process runs. Methods may run concurrently.
type zoneTable struct {
	mu      sync.RWMutex
	numbers map[string]Mask
	zones   []*time.Location
}

// numberOf returns the number of a time zone; 0 for an empty name.
func (t *zoneTable) numberOf(name string) Mask {
	if name == "" {
		return 0
	}
	t.mu.RLock()
	number, has := t.numbers[name]
	t.mu.RUnlock()
	if has {
		return number
	}
	zone, err := loadZone(name)
	if err != nil {
		return unreadableZone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if number, has = t.numbers[name]; !has {
		t.zones = append(t.zones, zone)
		number = Mask(len(t.zones))
		t.numbers[name] = number
	}
	return number
}

// zoneOf returns the time zone of a number from 1 on; nil: it cannot be read.
func (t *zoneTable) zoneOf(number Mask) *time.Location {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if int(number) > len(t.zones) {
		return nil
	}
	return t.zones[number-1]
}
