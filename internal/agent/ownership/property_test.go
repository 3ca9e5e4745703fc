package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// sim is a hub whose users act at random, a network that delays each Bundle's
// manifests as it likes, and an agent on a member that crashes at any moment.
type sim struct {
	t   *testing.T
	rng *rand.Rand
	log []string

	// The hub's truth.
	template   map[atoll.ItemKey]string
	holders    map[atoll.ItemKey]map[string]bool
	tombstones map[string][]atoll.Tombstone
	removed    map[string]bool
	generation map[string]int64
	history    map[string][]atoll.Manifest
	uids       int
	now        int
	regained   map[string]bool
	published  map[string]int // by bundle and generation
	unheld     map[string]int // by key and template: the last moment without a holder

	// The member and the agent.
	objects   map[atoll.ItemKey]*object
	book      *OwnershipRecords
	holdings  map[string]BundleHolding
	persisted map[string][]Record
	delivered map[string]int
	// reported is what each bundle's report said when the agent last had a reason
	// to look.
	reported map[string]string
}

type object struct {
	uid, template, label string
	// since is when the manifest that it was made from was published.
	since int
}

var (
	simBundles = []string{"b1", "b2", "b3"}
	simKeys    = []atoll.ItemKey{{Kind: "ConfigMap", Namespace: "n", Name: "x"}, {Group: "batch", Kind: "Job", Namespace: "n", Name: "y"}}
)

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)),
		template: map[atoll.ItemKey]string{}, holders: map[atoll.ItemKey]map[string]bool{},
		tombstones: map[string][]atoll.Tombstone{}, removed: map[string]bool{}, generation: map[string]int64{},
		history: map[string][]atoll.Manifest{}, published: map[string]int{}, regained: map[string]bool{}, unheld: map[string]int{}, objects: map[atoll.ItemKey]*object{}, book: NewOwnershipRecords(),
		holdings: map[string]BundleHolding{}, persisted: map[string][]Record{}, delivered: map[string]int{}, reported: map[string]string{},
	}
	for _, k := range simKeys {
		s.holders[k] = map[string]bool{}
	}
	return s
}

func (s *sim) addToLog(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	for _, l := range s.log {
		s.t.Log(l)
	}
	s.t.Fatalf(format, args...)
}

func (s *sim) nextUID() string { s.uids++; return fmt.Sprintf("u%d", s.uids) }

// publishManifest a new manifest of the bundle.
func (s *sim) publishManifest(bundle string) {
	s.generation[bundle]++
	m := atoll.Manifest{Bundle: bundle, Generation: s.generation[bundle], Remove: s.removed[bundle]}
	m.Tombstones = slices.Clone(s.tombstones[bundle])
	if !m.Remove {
		for _, k := range simKeys {
			if s.holders[k][bundle] {
				m.Items = append(m.Items, atoll.RenderedItem{Key: k, UID: s.template[k], Object: []byte("{}"), Hash: "h" + s.template[k]})
			}
		}
	}
	s.published[fmt.Sprint(bundle, m.Generation)] = s.now
	s.history[bundle] = append(s.history[bundle], m)
	s.addToLog("hub: %s gen %d items %v tombstones %v remove %v", bundle, m.Generation, itemNames(m), m.Tombstones, m.Remove)
}

func itemNames(m atoll.Manifest) (out []string) {
	for _, it := range m.Items {
		out = append(out, it.Key.Name+"="+it.UID)
	}
	return out
}

// dropItem the bundle's hold on the key.
func (s *sim) dropItem(k atoll.ItemKey, bundle string, cause atoll.TombstoneCause) {
	delete(s.holders[k], bundle)
	t := atoll.Tombstone{Key: k, UID: s.template[k], Cause: cause}
	if cause != atoll.CauseDeleted {
		t.MovedTo = slices.Sorted(maps.Keys(s.holders[k]))
	}
	s.tombstones[bundle] = append(slices.DeleteFunc(s.tombstones[bundle], func(o atoll.Tombstone) bool { return o.Key == k && o.UID == t.UID }), t)
}

func (s *sim) holdItem(k atoll.ItemKey, bundle string) {
	for _, t := range s.tombstones[bundle] {
		if t.Key == k && t.UID == s.template[k] && len(t.MovedTo) == 0 {
			// A Bundle that gave a template up for good gets it back. Nothing distinguishes its
			// old tombstone from a new one, so the object may be created again.
			s.regained[k.Name+t.UID] = true
		}
	}
	s.holders[k][bundle] = true
	s.removed[bundle] = false
	s.tombstones[bundle] = slices.DeleteFunc(s.tombstones[bundle], func(o atoll.Tombstone) bool { return o.Key == k && o.UID == s.template[k] })
}

// playStep is one act of a user.
func (s *sim) playStep() {
	k := simKeys[s.rng.IntN(len(simKeys))]
	x, y := simBundles[s.rng.IntN(3)], simBundles[s.rng.IntN(3)]
	touched := map[string]bool{}
	switch s.rng.IntN(7) {
	case 0, 1: // place it in another bundle too
		if s.template[k] == "" {
			s.template[k] = s.nextUID()
		}
		s.holdItem(k, x)
		touched[x] = true
	case 2: // move it
		if s.holders[k][x] && x != y {
			s.holdItem(k, y)
			s.dropItem(k, x, atoll.CauseMoved)
			touched[x], touched[y] = true, true
		}
	case 3: // one bundle needs it no longer
		if s.holders[k][x] {
			s.dropItem(k, x, atoll.CauseUnused)
			touched[x] = true
		}
	case 4: // delete the template
		touched = s.deleteTemplate(k)
	case 5: // delete and re-create it
		touched = s.deleteTemplate(k)
		s.template[k] = s.nextUID()
		s.holdItem(k, y)
		touched[y] = true
	case 6: // the bundle leaves the cluster
		for _, key := range simKeys {
			if s.holders[key][x] {
				s.dropItem(key, x, atoll.CauseUnused)
			}
		}
		s.removed[x] = true
		touched[x] = true
	}
	s.now++
	for _, key := range simKeys {
		for n := range s.uids + 1 {
			if uid := fmt.Sprintf("u%d", n); uid != s.template[key] || len(s.holders[key]) == 0 {
				s.unheld[key.Name+uid] = s.now
			}
		}
	}
	for _, b := range slices.Sorted(maps.Keys(touched)) {
		s.publishManifest(b)
	}
}

func (s *sim) deleteTemplate(k atoll.ItemKey) map[string]bool {
	touched := map[string]bool{}
	for b := range s.holders[k] {
		s.dropItem(k, b, atoll.CauseDeleted)
		touched[b] = true
	}
	delete(s.template, k)
	return touched
}

// deliverManifest a manifest of a bundle: the next, one further on, or an old one again.
func (s *sim) deliverManifest(bundle string, last bool) {
	n := len(s.history[bundle])
	if n == 0 {
		return
	}
	i := n - 1
	if !last {
		i = s.rng.IntN(n)
	}
	m := s.history[bundle][i]
	prev, held := s.holdings[bundle]
	if held && prev.Manifest.Generation > m.Generation {
		return
	}
	var h BundleHolding
	if held {
		h = Merge(&prev, m)
	} else {
		h = Merge(nil, m)
	}
	s.holdings[bundle] = h
	s.book.FoldHolding(h)
	s.addToLog("agent: got %s gen %d", bundle, m.Generation)
}

func (s *sim) flush() {
	for _, shard := range s.book.DirtyShards() {
		s.persisted[shard] = s.book.RecordsInShard(shard)
		s.book.MarkClean(shard)
	}
}

// crashAgent drops everything that was not stored.
func (s *sim) crashAgent() {
	s.addToLog("agent: crash")
	s.book = NewOwnershipRecords()
	for _, records := range s.persisted {
		for _, r := range records {
			s.book.RestoreRecord(r)
		}
	}
	for _, b := range slices.Sorted(maps.Keys(s.holdings)) {
		s.book.FoldHolding(s.holdings[b])
	}
}

// workOnItem does the next step of a key; false when there is nothing to do.
func (s *sim) workOnItem(k atoll.ItemKey, crashes bool) bool {
	p := s.book.Next(k)
	live := s.objects[k]
	if p.Verb != Nothing {
		s.addToLog("agent: %s %s (record %s/%s, claims %v)", p.Verb, k.Name, p.Record.UID, p.Record.Template, p.Record.Claims)
	}
	switch p.Verb {
	case Nothing:
		return s.find(k, p, live)
	case Apply:
		s.apply(k, p, live, crashes)
	case Delete, Replace:
		if s.book.RecordRunOnceDeletionStart(k) {
			s.flush()
		}
		if live != nil && live.uid == p.Record.UID {
			if s.unheld[k.Name+live.template] < live.since && !s.regained[k.Name+live.template] {
				s.fail("%s %s was deleted although its template %s was always held", k, live.uid, live.template)
			}
			delete(s.objects, k)
			if crashes && s.rng.IntN(4) == 0 {
				s.crashAgent()
				return true
			}
		}
		s.book.RecordGone(k, p.Record.UID, nil)
	case Search:
		if live != nil && p.Record.Claims[live.label].State != "" {
			s.book.RecordFoundAfterInterruptedApply(k, Fact{UID: live.uid, Label: live.label, Template: live.template})
		} else {
			s.book.RecordGone(k, "", nil)
		}
	default:
		s.fail("unexpected %s of %s", p.Verb, k)
	}
	return true
}

// find does what the shell does when a watch shows that the recorded object went,
// or has another label than it should.
func (s *sim) find(k atoll.ItemKey, p Step, live *object) bool {
	if p.Record.UID != "" && (live == nil || live.uid != p.Record.UID) {
		s.book.RecordGone(k, p.Record.UID, nil)
		return true
	}
	if p.Record.UID != "" && live.label != p.Record.Label && p.Item != nil {
		s.apply(k, p, live, false)
		return true
	}
	return false
}

func (s *sim) apply(k atoll.ItemKey, p Step, live *object, crashes bool) {
	if p.Record.Label != p.Owner {
		s.flush()
	}
	switch {
	case p.Record.UID != "" && (live == nil || live.uid != p.Record.UID):
		s.book.RecordGone(k, p.Record.UID, nil)
		return
	case p.Record.UID == "" && live != nil:
		if _, claims := p.Record.Claims[live.label]; !claims && live.label != p.Record.Owner {
			s.fail("%s: the agent does not know its own object %+v, record %+v", k, live, p.Record)
		}
		s.book.RecordFoundAfterInterruptedApply(k, Fact{UID: live.uid, Label: live.label, Template: live.template})
		return
	case p.Record.UID == "":
		live = &object{uid: "m-" + s.nextUID()}
		live.since = s.published[fmt.Sprint(p.Owner, s.holdings[p.Owner].Manifest.Generation)]
		s.objects[k] = live
	}
	live.template, live.label = p.Item.UID, p.Owner
	s.addToLog("member: %s is %+v", k.Name, *live)
	if crashes && s.rng.IntN(4) == 0 {
		s.crashAgent()
		return
	}
	s.book.RecordApplied(k, Fact{UID: live.uid, Template: p.Item.UID, Hash: p.Item.Hash, Label: p.Owner, Owned: "o"})
}

func (s *sim) settleAll() {
	for range 200 {
		busy := false
		for _, k := range simKeys {
			busy = s.workOnItem(k, false) || busy
		}
		if !busy {
			return
		}
	}
	s.fail("it does not come to rest")
}

// statusText is what is reported of a bundle that depends on claims.
func (s *sim) statusText(bundle string) string {
	return fmt.Sprint(s.book.HoldingOf(bundle) != nil, s.book.CompletedTombstoneIDs(bundle), s.book.IsBundleRemovalDone(bundle))
}

// reportStatuses looks at the bundles that the book names, and at those that the act
// before was about. The reports of all others must not have changed.
func (s *sim) reportStatuses(about ...string) {
	changed := slices.Concat(about, s.book.TakeChangedBundles())
	for _, b := range simBundles {
		now := s.statusText(b)
		if s.reported[b] != now && !slices.Contains(changed, b) {
			s.fail("the change of the report of %s from %s to %s is not reported; reported: %v", b, s.reported[b], now, changed)
		}
		s.reported[b] = now
	}
}

// checkFinalState checks that the member is what the hub orders.
func (s *sim) checkFinalState() {
	for _, b := range simBundles {
		s.deliverManifest(b, true)
	}
	s.settleAll()
	for _, b := range simBundles {
		if s.book.IsBundleRemovalDone(b) {
			s.book.ForgetBundle(b, 1)
		}
	}
	s.settleAll()
	for _, k := range simKeys {
		o := s.objects[k]
		wanted := len(s.holders[k]) > 0
		r, _ := s.book.Record(k)
		switch {
		case wanted && o == nil && RunsOnce(k) && r.Ran == s.template[k]:
			s.fail("%s was lost, record %+v", k, r)
		case wanted && o == nil:
			s.fail("%s is missing, record %+v", k, r)
		case !wanted && o != nil:
			s.fail("%s is left over: %+v, record %+v", k, o, r)
		case wanted && o.template != s.template[k]:
			s.fail("%s was made for %s, not for %s, record %+v", k, o.template, s.template[k], r)
		case wanted && !s.holders[k][o.label]:
			s.fail("%s is labelled %s, held by %v, record %+v", k, o.label, s.holders[k], r)
		}
	}
	for _, b := range simBundles {
		if h := s.book.HoldingOf(b); h != nil {
			if done := s.book.CompletedTombstoneIDs(b); len(done) != len(h.Manifest.Tombstones) {
				s.fail("%s has carried out %v of %v", b, done, h.Manifest.Tombstones)
			}
			if h.Manifest.Remove != s.book.IsBundleRemovalDone(b) {
				s.fail("%s: removed is %v", b, s.book.IsBundleRemovalDone(b))
			}
		}
	}
}

// checkIndexes compares what the indexes list with what all records and all bundles list.
func (s *sim) checkIndexes() {
	shards := map[string][]Record{}
	for _, k := range slices.SortedFunc(slices.Values(s.book.RecordedKeys()), CompareKeys) {
		r, _ := s.book.Record(k)
		shards[ShardOf(k)] = append(shards[ShardOf(k)], r)
	}
	for _, k := range simKeys {
		if is, want := s.book.RecordsInShard(ShardOf(k)), shards[ShardOf(k)]; !reflect.DeepEqual(is, want) {
			s.fail("the shard of %s has %+v, want %+v", k, is, want)
		}
		r, _ := s.book.Record(k)
		var want []string
		for _, b := range simBundles {
			h := s.book.HoldingOf(b)
			_, claims := r.Claims[b]
			if h != nil && (claims || slices.ContainsFunc(h.Manifest.Tombstones, func(t atoll.Tombstone) bool { return t.Key == k })) {
				want = append(want, b)
			}
		}
		if is := slices.Sorted(slices.Values(s.book.BundlesWithClaimOrTombstone(k))); !slices.Equal(is, want) {
			s.fail("%s concerns %v, want %v", k, is, want)
		}
	}
}

func TestAnyOrderOfMessages(t *testing.T) {
	seeds := uint64(30_000)
	if testing.Short() {
		seeds = 2_000
	}
	for seed := range seeds {
		s := newSim(t, seed)
		s.addToLog("seed %d", seed)
		s.reportStatuses(simBundles...)
		for range 30 {
			switch s.rng.IntN(6) {
			case 0, 1:
				s.playStep()
			case 2:
				b := simBundles[s.rng.IntN(3)]
				s.deliverManifest(b, s.rng.IntN(2) == 0)
				s.reportStatuses(b)
			case 3, 4:
				k, book := simKeys[s.rng.IntN(len(simKeys))], s.book
				s.workOnItem(k, true)
				about := s.book.BundlesWithClaimOrTombstone(k)
				if s.book != book {
					about = simBundles // after a start all are reported
				}
				s.reportStatuses(about...)
			case 5:
				if s.rng.IntN(3) == 0 {
					s.crashAgent()
					s.reportStatuses(simBundles...)
				} else if s.rng.IntN(2) == 0 {
					s.flush()
				}
			}
		}
		s.checkIndexes()
		s.checkFinalState()
		s.checkIndexes()
	}
}
