package apiserver

import (
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/apiserver/etcd"
)

// The sentence names what the administrator of an external etcd must do, when the hub cannot end the
// lack of room.
func TestTheReliefOfAnExternalEtcd(t *testing.T) {
	const byHub, byAdministrator = "within minutes after less than 85.0 MiB are in use", "the administrator of etcd then defragments each member"
	known := etcd.StoreUsage{UsedBytes: 97 << 20, QuotaBytes: 100 << 20}
	for name, c := range map[string]struct {
		now  etcd.StoreSpace
		want string
	}{
		"full":                    {etcd.StoreSpace{StoreUsage: known}, byHub},
		"an alarm unreached":      {etcd.StoreSpace{StoreUsage: known, HasUnreachedAlarm: true}, byAdministrator},
		"a quota that is unknown": {etcd.StoreSpace{StoreUsage: etcd.StoreUsage{UsedBytes: 97 << 20}}, byAdministrator},
	} {
		c.now.State, c.now.IsExternal = etcd.SpaceFull, true
		got := describeSpace(c.now)
		for _, part := range []string{byHub, byAdministrator} {
			if strings.Contains(got, part) != (part == c.want) {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// changingSpace is a spaceObserver whose state a test changes.
type changingSpace struct {
	spaceObserver
	now      etcd.StoreSpace
	onChange func(etcd.StoreSpace)
}

func (c *changingSpace) OnSpaceChange(fn func(etcd.StoreSpace)) {
	c.onChange = fn
	fn(c.now)
}

// A hub that begins to lead on a store without room reports so, and each change for the worse.
func TestOnStoreFull(t *testing.T) {
	space := &changingSpace{now: etcd.StoreSpace{State: etcd.SpaceReserve, IsExternal: true}}
	s := &Server{store: &store{space: space}}
	var reported []string
	s.OnStoreSpaceLow(func(sentence string) { reported = append(reported, sentence) })
	for _, state := range []etcd.StoreSpaceState{etcd.SpaceFree, etcd.SpaceFull} {
		space.onChange(etcd.StoreSpace{State: state, IsExternal: true})
	}
	isRight := func(sentence, part string) bool { return strings.HasPrefix(sentence, "the hub's etcd is "+part) }
	if !slices.EqualFunc(reported, []string{"nearly full", "full"}, isRight) {
		t.Errorf("reported %q", reported)
	}
}
