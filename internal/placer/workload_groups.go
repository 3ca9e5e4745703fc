package placer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/lru"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// groupKey names a group of workloadAffinity.
type groupKey struct{ namespace, key, value string }

func compareGroupKeys(a, b groupKey) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.key, b.key), strings.Compare(a.value, b.value))
}

// groupIndex stores, by group of workloadAffinity, in which clusters its members are. A namespace is read at the first
// decision about one of its members, and changed members later. Bundles without workloadAffinity cost nothing.
//
// A step records what it decided before it writes. The decision counts until its rows can be read or the write has
// failed, so that no two members choose by what the other one leaves or takes.
type groupIndex struct {
	mu         sync.Mutex
	namespaces map[string]*groupNamespace
	members    map[string]*groupMember // by Bundle UID
	groups     map[groupKey]*workloadGroup
	// created counts the groups that were made, so that a group that comes back begins with other changes.
	created uint64
	// decisions counts the decisions that were recorded.
	decisions uint64
	// labels of revisions, as schedule.TemplateLabels.
	labels *lru.Cache
}

// groupNamespace is a namespace with Bundles that state workloadAffinity.
type groupNamespace struct {
	// deciding is held while a member is decided, until its decision is recorded.
	deciding sync.Mutex
	// isLoaded means that each member was read or is stale.
	isLoaded bool
	// stale members, by the number of the change.
	stale   map[string]uint64
	changes uint64
}

// groupMember is a Bundle in groups.
type groupMember struct {
	uid, namespace string
	name           schedule.MemberName
	groups         []groupKey
	places         map[string]memberPlace // by cluster, of its rows
	// decided holds the clusters that the step under way takes or leaves.
	decided map[string]decidedPlace
	// waitsSince is groupIndex.decisions when the member began to wait as it does now.
	waitsSince uint64
	// ownChanges counts the changes of groups that this member made.
	ownChanges uint64
}

// decidedPlace is what a step under way does in a cluster, until its rows can be read.
type decidedPlace struct {
	takes bool
	// before is the place before the decision, which was the decision of this number.
	before memberPlace
	number uint64
	// woken are the members that waited for the change.
	woken []string
}

// memberPlace is what a member has in a cluster: whether it takes the place, and whether it is to stay.
type memberPlace struct{ occupies, stays bool }

// workloadGroup holds the members of a group by cluster.
type workloadGroup struct {
	occupants, stayers map[string]map[string]bool
	// waiting members may choose more clusters, by UID: those that are kept apart, and those that are kept together.
	waitingApart, waitingTogether map[string]bool
	// changes counts how often a cluster came or went.
	changes uint64
}

func newGroupIndex() *groupIndex {
	return &groupIndex{
		namespaces: map[string]*groupNamespace{}, members: map[string]*groupMember{}, groups: map[groupKey]*workloadGroup{}, labels: lru.New(4096),
	}
}

// placeOfRow returns what a row stands for. It takes its cluster until it is gone, also while it is being removed.
func placeOfRow(spec *atoll.RowSpec) memberPlace {
	return memberPlace{occupies: spec.Phase != atoll.RowVacant, stays: spec.Phase.IsChosen()}
}

// ensureNamespace returns a namespace. The caller holds the lock.
func (x *groupIndex) ensureNamespace(name string) *groupNamespace {
	n := x.namespaces[name]
	if n == nil {
		n = &groupNamespace{stale: map[string]uint64{}}
		x.namespaces[name] = n
	}
	return n
}

// lockNamespace waits until no member of the namespace is being decided. unlock ends that.
func (x *groupIndex) lockNamespace(name string) (unlock func()) {
	x.mu.Lock()
	n := x.ensureNamespace(name)
	x.mu.Unlock()
	n.deciding.Lock()
	return n.deciding.Unlock
}

// isLoaded reports whether the members of a namespace are known.
func (x *groupIndex) isLoaded(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ensureNamespace(namespace).isLoaded
}

// startLoading marks the members of a namespace to be read.
func (x *groupIndex) startLoading(namespace string, uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.ensureNamespace(namespace)
	for _, uid := range uids {
		n.markStale(uid)
	}
	n.isLoaded = true
}

func (n *groupNamespace) markStale(uid string) {
	n.changes++
	n.stale[uid] = n.changes
}

// markBundleStale marks a Bundle to be read again, if it states workloadAffinity or did.
func (x *groupIndex) markBundleStale(namespace, uid string, states bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.members[uid]; m != nil {
		namespace, states = m.namespace, true
	}
	if states {
		x.ensureNamespace(namespace).markStale(uid)
	}
}

// dropMember drops a Bundle that states no workloadAffinity any more. woken are the members that may choose more clusters now.
func (x *groupIndex) dropMember(uid string) (woken []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil {
		return nil
	}
	delete(x.ensureNamespace(m.namespace).stale, uid)
	return x.removeMember(m)
}

// removeMember removes a member with its places and waits. The caller holds the lock.
func (x *groupIndex) removeMember(m *groupMember) (woken []string) {
	woken = x.setPlaces(m, nil)
	x.removeWaits(m)
	delete(x.members, m.uid)
	return woken
}

// copyStale copies the stale members of a namespace; nil: there are none.
func (x *groupIndex) copyStale(namespace string) map[string]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.ensureNamespace(namespace); len(n.stale) > 0 {
		return maps.Clone(n.stale)
	}
	return nil
}

// setMember records a stale member with its rows. A member that changed again stays stale, and one that another call has
// read since is left as it is. A member without groups is dropped. woken are the
// members that may choose more clusters now.
func (x *groupIndex) setMember(m groupMember, change uint64, rowsOf func(uid string) []state.Row) (woken []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.ensureNamespace(m.namespace)
	switch n.stale[m.uid] {
	case 0:
		return nil
	case change:
		delete(n.stale, m.uid)
	}
	var decided map[string]decidedPlace
	if old := x.members[m.uid]; old != nil {
		decided, m.ownChanges = old.decided, old.ownChanges
		if slices.Equal(old.groups, m.groups) {
			old.name = m.name
			return x.setPlaces(old, placesOfRows(rowsOf(m.uid)))
		}
		woken = x.removeMember(old)
	}
	if len(m.groups) == 0 {
		return woken
	}
	x.members[m.uid] = &m
	woken = append(woken, x.setPlaces(&m, placesOfRows(rowsOf(m.uid)))...)
	return append(woken, x.carryDecided(&m, decided)...)
}

// carryDecided counts a decision under way in the groups that its member has since then. The caller holds the lock.
func (x *groupIndex) carryDecided(m *groupMember, decided map[string]decidedPlace) (woken []string) {
	if len(decided) > 0 {
		m.decided = map[string]decidedPlace{}
	}
	for c, d := range decided {
		m.decided[c] = d
		woken = append(woken, x.movePlace(m, c, m.places[c], effectivePlace(m.places, m.decided, c))...)
	}
	return woken
}

func placesOfRows(rows []state.Row) map[string]memberPlace {
	out := make(map[string]memberPlace, len(rows))
	for i := range rows {
		out[rows[i].Cluster] = placeOfRow(&rows[i].Spec)
	}
	return out
}

// setPlaces replaces the places of a member; nil drops also what it decided. The caller holds the lock.
func (x *groupIndex) setPlaces(m *groupMember, places map[string]memberPlace) (woken []string) {
	was, decided := m.places, m.decided
	before := func(c string) memberPlace { return effectivePlace(was, decided, c) }
	m.places = places
	if places == nil {
		m.decided = nil
	}
	for _, c := range slices.Sorted(maps.Keys(unionOfKeys(was, places, decided))) {
		woken = append(woken, x.movePlace(m, c, before(c), effectivePlace(m.places, m.decided, c))...)
	}
	return woken
}

func unionOfKeys(was, is map[string]memberPlace, decided map[string]decidedPlace) map[string]bool {
	out := make(map[string]bool, len(was)+len(is)+len(decided))
	for c := range was {
		out[c] = true
	}
	for c := range is {
		out[c] = true
	}
	for c := range decided {
		out[c] = true
	}
	return out
}

// updateRows counts the rows of a member that changed.
func (x *groupIndex) updateRows(uid string, clusters []string, rows Rows) (woken []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil {
		return nil
	}
	for _, c := range clusters {
		woken = append(woken, x.readPlace(m, c, rows)...)
	}
	if len(m.places) == 0 { // its Bundle may be gone already
		x.ensureNamespace(m.namespace).markStale(uid)
	}
	return woken
}

// readRows reads all rows of a member again.
func (x *groupIndex) readRows(uid string, rows Rows) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.members[uid]; m != nil {
		x.setPlaces(m, placesOfRows(rows.ListOfBundle(uid)))
	}
}

// readPlace reads one row of a member. The caller holds the lock.
func (x *groupIndex) readPlace(m *groupMember, cluster string, rows Rows) (woken []string) {
	was := effectivePlace(m.places, m.decided, cluster)
	m.readRow(cluster, rows)
	return x.movePlace(m, cluster, was, effectivePlace(m.places, m.decided, cluster))
}

func (m *groupMember) readRow(cluster string, rows Rows) {
	if row, has := rows.Get(m.uid, cluster); has {
		m.places[cluster] = placeOfRow(&row.Spec)
	} else {
		delete(m.places, cluster)
	}
}

// recordDecision counts what a step takes and leaves, before it is written.
func (x *groupIndex) recordDecision(uid string, takes map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil || len(takes) == 0 {
		return
	}
	if m.decided == nil {
		m.decided = map[string]decidedPlace{}
	}
	x.decisions++
	for c, take := range takes {
		was := effectivePlace(m.places, m.decided, c)
		d, isDecided := m.decided[c]
		if d.takes = take; !isDecided {
			d.before, d.number = was, x.decisions
		}
		m.decided[c] = d
		d.woken = append(d.woken, x.movePlace(m, c, was, effectivePlace(m.places, m.decided, c))...)
		m.decided[c] = d
	}
}

// endDecision counts the rows of a member alone, as they can be read now. woken are the members that may choose more clusters
// now, and wokenByFailure those whose clusters changed and are not as it was decided.
func (x *groupIndex) endDecision(uid string, rows Rows) (woken, wokenByFailure []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil {
		return nil, nil
	}
	for c, d := range m.decided {
		was := effectivePlace(m.places, m.decided, c)
		delete(m.decided, c)
		m.readRow(c, rows)
		is := m.places[c]
		all := append(d.woken, x.movePlace(m, c, was, is)...)
		if is == d.before { // nothing changed for those that looked before the decision
			all = x.keepWaitingSince(all, d.number)
		}
		if was == is {
			woken = append(woken, all...)
		} else {
			wokenByFailure = append(wokenByFailure, all...)
		}
	}
	return woken, wokenByFailure
}

// keepWaitingSince keeps the members that were decided after the decision of this number. The caller holds the lock.
func (x *groupIndex) keepWaitingSince(uids []string, number uint64) []string {
	return slices.DeleteFunc(uids, func(uid string) bool {
		m := x.members[uid]
		return m == nil || m.waitsSince < number
	})
}

// groupsOf returns the groups and the name of a member.
func (x *groupIndex) groupsOf(uid string) (groups []groupKey, name schedule.MemberName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.members[uid]; m != nil {
		return m.groups, m.name
	}
	return nil, name
}

// placesOf lists the clusters in which a member has a row.
func (x *groupIndex) placesOf(uid string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil {
		return nil
	}
	return slices.Collect(maps.Keys(m.places))
}

// othersIn returns a group without one member. A group that keeps together leaves out the clusters that the member escapes
// from.
func (x *groupIndex) othersIn(uid string, key groupKey, apart bool, escapes map[string]bool) schedule.WorkloadGroup {
	out := schedule.WorkloadGroup{Key: key.key, Value: key.value, KeepsApart: apart, NameAt: func(cluster string) schedule.MemberName { return x.nameOther(uid, key, apart, cluster) }}
	x.mu.Lock()
	defer x.mu.Unlock()
	clusters := x.groups[key].clustersOf(apart)
	out.Others = make(map[string]bool, len(clusters))
	for c, members := range clusters {
		if own := members[uid]; (len(members) > 1 || !own) && (apart || !escapes[c]) {
			out.Others[c] = true
		}
	}
	return out
}

// clustersOf returns the members by cluster that count for a term.
func (g *workloadGroup) clustersOf(apart bool) map[string]map[string]bool {
	switch {
	case g == nil:
		return nil
	case apart:
		return g.occupants
	}
	return g.stayers
}

// nameOther names the first other member in a cluster, by name.
func (x *groupIndex) nameOther(uid string, key groupKey, apart bool, cluster string) (name schedule.MemberName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for other := range x.groups[key].clustersOf(apart)[cluster] {
		if m := x.members[other]; other != uid && m != nil && (name.Text == "" || m.name.Text < name.Text) {
			name = m.name
		}
	}
	if name.Text == "" { // it left after the decision was made
		name.Text = "another member of the group"
	}
	return name
}

// countChanges counts the changes of groups that others made, for a snapshot.
func (x *groupIndex) countChanges(uid string, keys []groupKey) (n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.countChangesLocked(uid, keys)
}

func (x *groupIndex) countChangesLocked(uid string, keys []groupKey) (n uint64) {
	for _, key := range keys {
		if g := x.groups[key]; g != nil {
			n += g.changes
		}
	}
	if m := x.members[uid]; m != nil {
		n -= m.ownChanges
	}
	return n
}

// setWaits records whether a member waits for changes of its groups. isLate means that others changed them since the
// snapshot.
func (x *groupIndex) setWaits(uid string, v groupView, waits bool) (isLate bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.members[uid]
	if m == nil {
		return false
	}
	if x.removeWaits(m); !waits {
		return false
	}
	m.waitsSince = x.decisions
	for i, key := range v.keys {
		g := x.groups[key]
		if g == nil {
			continue
		}
		if v.groups.List[i].KeepsApart {
			g.waitingApart[uid] = true
		} else {
			g.waitingTogether[uid] = true
		}
	}
	return x.countChangesLocked(uid, v.keys) != v.changes
}

// removeWaits drops the waits of a member. The caller holds the lock.
func (x *groupIndex) removeWaits(m *groupMember) {
	for _, key := range m.groups {
		if g := x.groups[key]; g != nil {
			delete(g.waitingApart, m.uid)
			delete(g.waitingTogether, m.uid)
			x.dropEmptyGroup(key, g)
		}
	}
}

// copyNamespace copies the members of a namespace into an index for a preview.
func (x *groupIndex) copyNamespace(namespace string, to *groupIndex) {
	x.mu.Lock()
	defer x.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for uid, m := range x.members {
		if m.namespace == namespace && to.members[uid] == nil {
			one := &groupMember{uid: uid, namespace: namespace, name: m.name, groups: m.groups, decided: maps.Clone(m.decided)}
			to.members[uid] = one
			for c := range one.decided {
				to.movePlace(one, c, memberPlace{}, effectivePlace(nil, one.decided, c))
			}
			to.setPlaces(one, maps.Clone(m.places))
		}
	}
}
