package place

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

const (
	// promiseSettles is how long after a row was applied its pods are taken not to be in
	// what the agent reports: agents tell what lasts within 30 s.
	promiseSettles = 45 * time.Second
	// promiseLasts is how long a promise counts though nobody has acted on it.
	promiseLasts = 10 * time.Minute
	// reportSettles is how long a row was Ready before a report is taken to count its
	// pods.
	reportSettles = 5 * time.Second
	// moreRoom is how long more news of room is waited for.
	moreRoom = 5 * time.Second
)

// rooms of members: what agents report that nodes have left, less what was promised to
// rows since. It is read and written under the ledger's lock, where what is promised to
// one Bundle matters to the next.
type rooms struct {
	mu      sync.Mutex
	members map[string]*memberRoom // by cluster name
	// short Bundles: not all of their replicas had room in the group that they are in
	// (true), or in one that comes before (false).
	short map[string]bool
}

type memberRoom struct {
	// lines as the Cluster has them, read when somebody asks; nil: nobody knows.
	lines    []string
	reported atoll.Room
	read     bool
	every    time.Duration // between check-ins
	promises []*promise
	// left is the reported room less the promises; stale: it is to be worked out again.
	left   atoll.Room
	stale  bool
	looked time.Time
}

// promise of room to a row's item.
type promise struct {
	bundle, cluster, item string
	generation            int64
	requests              atoll.Requests
	replicas              int64
	made                  time.Time
}

func newRooms() *rooms {
	return &rooms{members: map[string]*memberRoom{}, short: map[string]bool{}}
}

// clone of what is known of members, whose promises are its own.
func (x *rooms) clone() *rooms {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := newRooms()
	for name, m := range x.members {
		one := *m
		one.promises = slices.Clone(m.promises)
		out.members[name] = &one
	}
	return out
}

func (x *rooms) member(name string) *memberRoom {
	m := x.members[name]
	if m == nil {
		m = &memberRoom{}
		x.members[name] = m
	}
	return m
}

// report what a Cluster says of its room; true where somebody waits for room and there is
// more than before. What cannot be read is not known.
func (x *rooms) report(c *v1alpha1.Cluster, rows Rows, now time.Time) (more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.member(c.Name)
	m.every = c.Spec.CheckIn()
	room := c.Status.Resources.Room
	if room == nil || c.Spec.ReportedRoom == v1alpha1.RoomIgnore {
		more = m.lines != nil // what others have no room for goes to one that nobody knows
		m.lines, m.reported, m.read, m.stale = nil, nil, false, true
		return more && len(x.short) > 0
	}
	if m.lines != nil && slices.Equal(m.lines, room.Classes) {
		return false
	}
	var was atoll.Room
	known := false
	if len(x.short) > 0 {
		was, known = m.room()
	}
	if m.lines, m.read, m.stale = room.Classes, false, true; m.lines == nil {
		m.lines = []string{}
	}
	if len(x.short) > 0 {
		is, _ := m.room()
		more = !known || roomier(is, was)
	}
	m.promises = slices.DeleteFunc(m.promises, func(p *promise) bool {
		row, ok := rows.Get(p.bundle, p.cluster)
		return ok && p.applied(row) && row.Status.State == atoll.RowReady && now.Sub(time.Unix(row.Status.Since, 0)) >= reportSettles
	})
	return more
}

// room that is reported; not known where it cannot be read.
func (m *memberRoom) room() (room atoll.Room, known bool) {
	if m.lines == nil {
		return nil, false
	}
	if !m.read {
		var err error
		if m.reported, err = atoll.ParseRoom(m.lines); err != nil {
			m.lines, m.reported = nil, nil
		}
		m.read = true
	}
	return m.reported, m.lines != nil
}

// roomier tells whether there is more of something.
func roomier(is, was atoll.Room) bool {
	sum := func(r atoll.Room, of func(*atoll.NodeClass) int64) (n int64) {
		for i := range r {
			n += r[i].Nodes * of(&r[i])
		}
		return n
	}
	more := func(of func(*atoll.NodeClass) int64) bool { return sum(is, of) > sum(was, of) }
	if more(func(c *atoll.NodeClass) int64 { return c.CPU }) || more(func(c *atoll.NodeClass) int64 { return c.Memory }) ||
		more(func(c *atoll.NodeClass) int64 { return c.Pods }) {
		return true
	}
	for i := range is {
		for name := range is[i].Other {
			if more(func(c *atoll.NodeClass) int64 { return c.Other[name] }) {
				return true
			}
		}
	}
	return false
}

func (x *rooms) forget(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.members, name)
}

// given to the decision is what members have left, as far as it is known; promised tells
// whether some of them have promises that are not settled.
func (x *rooms) given(d schedule.Decision, rows Rows, now time.Time) (out schedule.Decision, promised bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out = d.WithRoom(func(cluster string) (atoll.Room, bool) {
		m := x.members[cluster]
		if m == nil {
			return nil, false
		}
		if _, known := m.room(); !known {
			return nil, false
		}
		m.settle(rows, now)
		promised = promised || len(m.promises) > 0
		return m.left, true
	})
	return out, promised
}

// settle lets go of promises that the reported room has in it, at most once a second, and
// works out what is left.
func (m *memberRoom) settle(rows Rows, now time.Time) {
	if len(m.promises) > 0 && now.Sub(m.looked) >= time.Second {
		m.looked = now
		n := len(m.promises)
		m.promises = slices.DeleteFunc(m.promises, func(p *promise) bool { return p.over(rows, m.every, now) })
		m.stale = m.stale || len(m.promises) < n
	}
	if !m.stale {
		return
	}
	m.left, m.stale = m.reported, false
	for _, p := range m.promises {
		m.left = schedule.Take(m.left, p.requests, p.replicas)
	}
}

// applied tells whether the agent has done what the promise was made for.
func (p *promise) applied(row state.Row) bool {
	return row.Status != nil && row.Status.Generation >= p.generation && row.Status.Applied
}

func (p *promise) over(rows Rows, every time.Duration, now time.Time) bool {
	row, ok := rows.Get(p.bundle, p.cluster)
	switch {
	case now.Sub(p.made) >= promiseLasts+2*every:
		return true
	case !ok: // not written yet, or gone
		return now.Sub(p.made) >= promiseSettles
	case !p.applied(row):
		return false
	}
	// The agent's clock is not the hub's.
	acted := time.Unix(row.Status.Since, 0)
	if acted.Before(p.made) {
		acted = p.made
	}
	return now.Sub(acted) >= promiseSettles+2*every
}

// promise what the changes give rows on top of what they had; back takes it back.
func (x *rooms) promise(in *rollout.Input, changes map[string]*atoll.RowSpec) (back func()) {
	workloads := in.Decision.Workloads()
	if len(workloads) == 0 {
		return func() {}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var made []*promise
	for cluster, spec := range changes {
		if spec == nil {
			continue
		}
		had := in.Rows[cluster].Spec.Assigned
		for i := range workloads {
			w := &workloads[i]
			item := w.Key.String()
			if n := spec.Assigned[item] - had[item]; n > 0 {
				p := &promise{bundle: in.Bundle, cluster: cluster, item: item, generation: spec.Generation, requests: w.Requests, replicas: n, made: in.Now}
				made = append(made, p)
				x.add(p)
			}
		}
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, p := range made {
			m := x.member(p.cluster)
			m.promises, m.stale = slices.DeleteFunc(m.promises, func(o *promise) bool { return o == p }), true
		}
	}
}

func (x *rooms) add(p *promise) {
	m := x.member(p.cluster)
	m.promises = append(m.promises, p)
	if !m.stale && m.lines != nil {
		m.left = schedule.Take(m.left, p.requests, p.replicas)
	}
}

// lacks notes whether a Bundle waits for room, where it is or in an earlier group.
func (x *rooms) lacks(uid string, here, earlier bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if here || earlier {
		x.short[uid] = here
	} else {
		delete(x.short, uid)
	}
}

func (x *rooms) lacking() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.short)
}

// roomChanged looks at the Bundles that wait for room where the cluster reports more of
// it. Nobody else is looked at: what runs stays.
func (r *Reconciler) roomChanged(c *v1alpha1.Cluster) {
	if !r.rooms.report(c, r.Rows, time.Now()) {
		return
	}
	is := r.Views.Of(c)
	for uid, here := range r.rooms.lacking() {
		_, holds := r.Rows.Get(uid, c.Name)
		if here && holds || r.index.awaitsRoomIn(uid, &is) {
			r.index.whole(uid)
			r.add(uid, priorityUser, moreRoom)
		}
	}
}

// withRoom gives the decision what members have left, where that matters.
func (r *Reconciler) withRoom(d schedule.Decision, now time.Time) (out schedule.Decision, promised bool) {
	if !d.UsesRoom() {
		return d, false
	}
	return r.rooms.given(d, r.Rows, now)
}

// waitForRoom notes whether the Bundle has to be looked at when there is more room: when
// a cluster reports it, and when promises settle.
func (r *Reconciler) waitForRoom(s snapshot, out rollout.Output) {
	short := s.in.Decision.UsesRoom() && len(out.Short) > 0
	r.rooms.lacks(s.bundle.Ref.UID, short, s.in.Decision.EarlierFull)
	if short && s.promised {
		r.add(s.bundle.Ref.UID, priorityUser, promiseSettles)
	}
}

// restoreRooms promises again what was given to rows shortly before this hub began to
// decide, and is not there yet.
func (r *Reconciler) restoreRooms(ctx context.Context) {
	now := time.Now()
	for _, b := range r.Bundles.List() {
		var workloads []schedule.Workload
		for _, row := range r.Rows.OfBundle(b.Ref.UID) {
			young := now.Sub(time.Unix(row.Spec.Came(), 0)) < promiseLasts
			if len(row.Spec.Assigned) == 0 || !young || row.Status != nil && row.Status.Generation >= row.Spec.Generation && row.Status.State == atoll.RowReady {
				continue
			}
			if workloads == nil {
				target, content, err := r.target(ctx, b)
				if err != nil {
					break // the step says so
				}
				if workloads, err = r.index.workloads(target, content); err != nil || len(workloads) == 0 {
					break
				}
			}
			r.rooms.restore(row, workloads, now)
		}
	}
}

func (x *rooms) restore(row state.Row, workloads []schedule.Workload, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range workloads {
		item := workloads[i].Key.String()
		if n := row.Spec.Assigned[item]; n > 0 {
			x.add(&promise{
				bundle: row.Bundle.UID, cluster: row.Cluster, item: item, generation: row.Spec.Generation,
				requests: workloads[i].Requests, replicas: n, made: now,
			})
		}
	}
}
