package etcd

import "testing"

func TestNextSpaceState(t *testing.T) {
	const quota = 1000
	for name, c := range map[string]struct {
		before StoreSpaceState
		usage  StoreUsage
		want   StoreSpaceState
	}{
		"empty":                                     {SpaceFree, StoreUsage{}, SpaceFree},
		"just below the reserve":                    {SpaceFree, StoreUsage{UsedBytes: 899}, SpaceFree},
		"the reserve begins":                        {SpaceFree, StoreUsage{UsedBytes: 900}, SpaceReserve},
		"unused pages do not count":                 {SpaceFree, StoreUsage{FileBytes: 949, UsedBytes: 500}, SpaceFree},
		"until etcd is about to refuse writes":      {SpaceFree, StoreUsage{FileBytes: 950, UsedBytes: 500}, SpaceReserve},
		"a little was deleted":                      {SpaceReserve, StoreUsage{UsedBytes: 850}, SpaceReserve},
		"enough was deleted":                        {SpaceReserve, StoreUsage{UsedBytes: 849}, SpaceFree},
		"the alarm counts more than sizes":          {SpaceReserve, StoreUsage{UsedBytes: 10, Alarm: true}, SpaceFull},
		"after the alarm, still in the reserve":     {SpaceFull, StoreUsage{UsedBytes: 860}, SpaceReserve},
		"after the alarm, with room":                {SpaceFull, StoreUsage{UsedBytes: 100}, SpaceFree},
		"over the quota, after a start with a full": {SpaceFree, StoreUsage{UsedBytes: 1010}, SpaceReserve},
	} {
		c.usage.QuotaBytes, c.usage.LimitBytes = quota, quota
		if got := nextSpaceState(c.before, c.usage); got != c.want {
			t.Errorf("%s: %v, wanted %v", name, got, c.want)
		}
	}
}

func TestMustDefragmentAndDisarm(t *testing.T) {
	for name, c := range map[string]struct {
		usage              StoreUsage
		defragment, disarm bool
	}{
		"a small file":                     {StoreUsage{FileBytes: 949, UsedBytes: 10}, false, false},
		"a large file of unused pages":     {StoreUsage{FileBytes: 950, UsedBytes: 900}, true, false},
		"a large file in use":              {StoreUsage{FileBytes: 950, UsedBytes: 901}, false, false},
		"an alarm, and any gain is enough": {StoreUsage{FileBytes: 1000, UsedBytes: 949, Alarm: true}, true, false},
		"an alarm without a gain":          {StoreUsage{FileBytes: 1000, UsedBytes: 951, Alarm: true}, false, false},
		"an alarm with room":               {StoreUsage{FileBytes: 950, UsedBytes: 940, Alarm: true}, false, true},
		"room below a raised limit":        {StoreUsage{FileBytes: 1040, UsedBytes: 1040, LimitBytes: 1100, Alarm: true}, false, true},
		"a gain below a raised limit":      {StoreUsage{FileBytes: 1100, UsedBytes: 1040, LimitBytes: 1100, Alarm: true}, true, false},
	} {
		u := c.usage
		u.QuotaBytes = 1000
		if u.LimitBytes == 0 {
			u.LimitBytes = u.QuotaBytes
		}
		if got := mustDefragment(u); got != c.defragment {
			t.Errorf("%s: defragment %v", name, got)
		}
		if got := canDisarmAlarm(u); got != c.disarm {
			t.Errorf("%s: disarm %v", name, got)
		}
	}
}

func TestStartQuota(t *testing.T) {
	for _, c := range []struct{ stated, file, want int64 }{
		{1000, 0, 1000}, {1000, 900, 1000}, {1000, 901, 1001}, {1000, 1000, 1100}, {1000, 3000, 3100},
	} {
		if got := startQuota(c.stated, c.file); got != c.want {
			t.Errorf("a quota of %d and a file of %d: %d, wanted %d", c.stated, c.file, got, c.want)
		}
	}
}

// TestMustCommit: a quota of 100 MiB has a reserve of 10 MiB, half of which two writes can fill.
func TestMustCommit(t *testing.T) {
	for _, c := range []struct {
		used   int64
		writes int64
		want   bool
	}{{used: 49, writes: 1000}, {used: 50, writes: 1}, {used: 50, writes: 2, want: true}, {used: 95, writes: 2, want: true}} {
		if got := mustCommit(StoreUsage{UsedBytes: c.used << 20, QuotaBytes: 100 << 20}, c.writes); got != c.want {
			t.Errorf("%d MiB in use and %d writes: %t", c.used, c.writes, got)
		}
	}
}
