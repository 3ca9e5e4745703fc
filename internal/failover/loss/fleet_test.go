package loss

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func fiveMinutes() Terms {
	return TermsOf(&v1alpha1.ClusterFailover{After: metav1.Duration{Duration: 5 * time.Minute}})
}

// newTestFleet returns a fleet of ready clusters, so many in each zone.
func newTestFleet(perZone int, zones ...string) *Fleet {
	f := NewFleet(start)
	for _, z := range zones {
		for i := range perZone {
			f.SetMember(fmt.Sprint(z, i), Member{zone: z, since: start}, start)
		}
	}
	return f
}

// loseMember loses a cluster.
func (f *Fleet) loseMember(name string, at time.Time) {
	m := f.byName[name]
	m.loss = unreachable
	f.SetMember(name, m, at)
}

func TestTermsHaveDefaults(t *testing.T) {
	s := &v1alpha1.ClusterFailover{After: metav1.Duration{Duration: time.Hour}}
	if got := TermsOf(s); got != (Terms{time.Hour, time.Minute, 55}) {
		t.Errorf("%+v", got)
	}
	s.RecoverAfter, s.MaxLostPercent = &metav1.Duration{}, 20
	if got := TermsOf(s); got != (Terms{time.Hour, 0, 20}) {
		t.Errorf("%+v", got)
	}
}

// A cluster is tainted when it is lost for so long, and untainted when it is ready for so long without a break.
func TestALostClusterIsTaintedAndUntainted(t *testing.T) {
	f, terms := newTestFleet(3, "a"), fiveMinutes()
	lost := start.Add(time.Hour)
	f.loseMember("a0", lost)
	if what, at := f.JudgeCluster("a0", terms, lost); what != Nothing || !at.Equal(lost.Add(5*time.Minute)) {
		t.Errorf("at once: %d, again at %s", what, at)
	}
	if what, at := f.JudgeCluster("a0", terms, lost.Add(5*time.Minute-1)); what != Nothing || !at.Equal(lost.Add(5*time.Minute)) {
		t.Errorf("early: %d, again at %s", what, at)
	}
	if what, _ := f.JudgeCluster("a0", terms, lost.Add(5*time.Minute)); what != AddTaint {
		t.Errorf("when it is due: %d", what)
	}
	m := f.byName["a0"]
	m.taint = unreachable
	f.SetMember("a0", m, lost)
	if what, at := f.JudgeCluster("a0", terms, lost.Add(time.Hour)); what != Nothing || !at.IsZero() {
		t.Errorf("tainted: %d, again at %s", what, at)
	}
	back := lost.Add(2 * time.Hour)
	m.loss = notLost
	f.SetMember("a0", m, back)
	if what, at := f.JudgeCluster("a0", terms, back.Add(59*time.Second)); what != Nothing || !at.Equal(back.Add(time.Minute)) {
		t.Errorf("just back: %d, again at %s", what, at)
	}
	m.loss = notReady
	f.SetMember("a0", m, back.Add(30*time.Second))
	m.loss = notLost
	f.SetMember("a0", m, back.Add(40*time.Second))
	if what, at := f.JudgeCluster("a0", terms, back.Add(time.Minute)); what != Nothing || !at.Equal(back.Add(100*time.Second)) {
		t.Errorf("after a break: %d, again at %s", what, at)
	}
	if what, _ := f.JudgeCluster("a0", terms, back.Add(100*time.Second)); what != RemoveTaint {
		t.Errorf("ready for a minute: %d", what)
	}
}

// A change from one loss to the other is no new loss. A loss before the start counts from its time, and not before the end
// of the grace period.
func TestTheTimeOfALoss(t *testing.T) {
	f, terms := newTestFleet(3, "a"), fiveMinutes()
	f.loseMember("a0", start)
	m := f.byName["a0"]
	m.loss = notReady
	f.SetMember("a0", m, start.Add(4*time.Minute))
	if what, _ := f.JudgeCluster("a0", terms, start.Add(5*time.Minute)); what != AddTaint {
		t.Errorf("lost in two ways for five minutes: %d", what)
	}
	f = newTestFleet(3, "a")
	f.notBefore = start.Add(2 * time.Minute)
	f.SetMember("old", Member{zone: "a", loss: unreachable, since: start.Add(-time.Hour)}, start)
	if what, at := f.JudgeCluster("old", terms, start); what != Nothing || !at.Equal(f.notBefore) {
		t.Errorf("at the start of the hub: %d, again at %s", what, at)
	}
	if what, _ := f.JudgeCluster("old", terms, f.notBefore); what != AddTaint {
		t.Errorf("after the grace period: %d", what)
	}
}

// While too much of the fleet, or of a zone, is lost, no further cluster is tainted. A zone that is lost as a whole does
// not pause.
func TestTooManyLost(t *testing.T) {
	for _, tc := range []struct {
		name        string
		lost        []string
		want        Action
		percent     int32
		zones       []string
		perZone     int
		returns     string
		resumesThen bool
	}{
		{name: "few", lost: []string{"a0"}, zones: []string{"a", "b"}, perZone: 4, want: AddTaint},
		{name: "two of a small zone", lost: []string{"a0", "a1"}, zones: []string{"a", "b"}, perZone: 3, want: AddTaint},
		{name: "most of a zone", lost: []string{"a0", "a1", "a2"}, zones: []string{"a", "b"}, perZone: 4, want: Nothing, returns: "a2", resumesThen: true},
		{name: "a whole zone", lost: []string{"a0", "a1", "a2", "a3"}, zones: []string{"a", "b"}, perZone: 4, want: AddTaint},
		{name: "most of the fleet", lost: []string{"a0", "a1", "a2", "b0", "b1"}, zones: []string{"a", "b"}, perZone: 4, want: Nothing, returns: "a1", resumesThen: true},
		{name: "all", lost: []string{"a0", "a1"}, zones: []string{"a"}, perZone: 2, want: Nothing, returns: "a1", resumesThen: true},
		{name: "one of two", lost: []string{"a0"}, zones: []string{"a"}, perZone: 2, want: AddTaint},
		{name: "a stated share", lost: []string{"a0", "b0"}, zones: []string{"a", "b"}, perZone: 4, percent: 20, want: Nothing, returns: "b0", resumesThen: true},
		{name: "another one returns, and too many are lost still", lost: []string{"a0", "a1", "a2", "b0", "b1", "b2"}, zones: []string{"a", "b"}, perZone: 4, want: Nothing, returns: "b2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, terms := newTestFleet(tc.perZone, tc.zones...), fiveMinutes()
			if tc.percent > 0 {
				terms.MaxLostPercent = int(tc.percent)
			}
			for _, name := range tc.lost {
				f.loseMember(name, start)
			}
			due := start.Add(time.Hour)
			if what, _ := f.JudgeCluster("a0", terms, due); what != tc.want {
				t.Fatalf("%d, want %d", what, tc.want)
			}
			if tc.want == AddTaint {
				return
			}
			if n := f.CountClusters(); n.Paused != 1 || n.Lost != len(tc.lost) {
				t.Errorf("%+v", n)
			}
			if names := f.TakeResumable(terms); names != nil {
				t.Errorf("%v resume although nothing changed", names)
			}
			m := f.byName[tc.returns]
			m.loss = notLost
			f.SetMember(tc.returns, m, due)
			if names := f.TakeResumable(terms); slices.Contains(names, "a0") != tc.resumesThen {
				t.Errorf("%v resume after %s returned", names, tc.returns)
			}
		})
	}
}

// One cluster a second is tainted, and in one zone one in ten seconds.
func TestTaintsAreRateLimited(t *testing.T) {
	f, terms := newTestFleet(9, "a", "b", "c"), fiveMinutes()
	for _, name := range []string{"a0", "a1", "b0"} {
		f.loseMember(name, start)
	}
	due := start.Add(time.Hour)
	if what, _ := f.JudgeCluster("a0", terms, due); what != AddTaint {
		t.Fatalf("the first one: %d", what)
	}
	for name, want := range map[string]time.Duration{"a1": 10 * time.Second, "b0": time.Second} {
		if what, at := f.JudgeCluster(name, terms, due); what != Nothing || at.Sub(due) != want {
			t.Errorf("%s: %d, again after %s, want %s", name, what, at.Sub(due), want)
		}
	}
}

// Counts follow from the members, whatever happened before.
func TestCountsFollowFromMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f, terms, now := NewFleet(start), fiveMinutes(), start
	for range 5000 {
		name := fmt.Sprint("c", r.IntN(40))
		if now = now.Add(time.Duration(r.IntN(60)) * time.Second); r.IntN(10) == 0 {
			f.RemoveMember(name)
		} else {
			f.SetMember(name, Member{zone: fmt.Sprint("z", r.IntN(4)), loss: Loss(r.IntN(3)), taint: Loss(max(0, r.IntN(6)-3)), since: now}, now)
			f.JudgeCluster(name, terms, now)
		}
		if r.IntN(5) == 0 {
			f.TakeResumable(terms)
		}
		want := Counts{}
		for _, m := range f.byName {
			if m.loss != notLost {
				want.Lost++
			}
			if m.taint != notLost {
				want.Tainted++
			}
		}
		got := f.CountClusters()
		for zone, names := range f.paused {
			for name := range names {
				if m := f.byName[name]; m.zone != zone || m.loss == notLost || m.taint == m.loss {
					t.Fatalf("%s is paused in zone %s: %+v", name, zone, m)
				}
			}
		}
		if want.Paused = got.Paused; got != want || f.members != len(f.byName) {
			t.Fatalf("%+v, want %+v; %d members of %d", got, want, f.members, len(f.byName))
		}
	}
}

func newTestCluster(change ...func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	at := metav1.NewTime(start)
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true, Zone: "z"}, Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue}, {Type: v1alpha1.ClusterReady, Status: metav1.ConditionUnknown, LastTransitionTime: at},
	}}}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestMemberOf(t *testing.T) {
	ready := func(s metav1.ConditionStatus) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Status.Conditions[1].Status = s }
	}
	for name, tc := range map[string]struct {
		cluster *v1alpha1.Cluster
		want    Member
		member  bool
	}{
		"disconnected": {newTestCluster(), Member{zone: "z", loss: unreachable, since: start}, true},
		"not ready":    {newTestCluster(ready(metav1.ConditionFalse)), Member{zone: "z", loss: notReady, since: start}, true},
		"ready":        {newTestCluster(ready(metav1.ConditionTrue)), Member{zone: "z", since: start}, true},
		"tainted":      {WithTaint(newTestCluster(), notReady, start), Member{zone: "z", loss: unreachable, since: start, taint: notReady}, true},
		"with another effect of the taint": {newTestCluster(func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoSchedule}}
		}), Member{zone: "z", loss: unreachable, since: start}, true},
		"checks in": {newTestCluster(ready(metav1.ConditionTrue), func(c *v1alpha1.Cluster) {
			c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn}
		}), Member{zone: "z", since: start, checksIn: true}, true},
		"in several zones": {newTestCluster(func(c *v1alpha1.Cluster) {
			c.Spec.Zone, c.Spec.Zones = "", []string{"z", "a"}
		}), Member{zone: "a,z", loss: unreachable, since: start}, true},
		"never joined":  {newTestCluster(func(c *v1alpha1.Cluster) { c.Status.Conditions[0].Status = metav1.ConditionFalse }), Member{}, false},
		"not accepted":  {newTestCluster(func(c *v1alpha1.Cluster) { c.Spec.Accepted = false }), Member{}, false},
		"being deleted": {newTestCluster(func(c *v1alpha1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: start} }), Member{}, false},
		"new":           {&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}, Member{}, false},
	} {
		if got, is := MemberOf(tc.cluster); got != tc.want || is != tc.member {
			t.Errorf("%s: %+v, %t", name, got, is)
		}
	}
}

// Taints of people stay, and the Cluster of the table is not changed.
func TestTaintsOfTheHub(t *testing.T) {
	mine := v1alpha1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute}
	c := newTestCluster(func(c *v1alpha1.Cluster) { c.Spec.Taints = []v1alpha1.Taint{mine} })
	tainted := WithTaint(c, unreachable, start)
	if n := len(c.Spec.Taints); n != 1 || len(tainted.Spec.Taints) != 2 || !IsTainted(tainted) || IsTainted(c) {
		t.Errorf("%d taints, then %+v", n, tainted.Spec.Taints)
	}
	if got := tainted.Spec.Taints[1]; got.Key != "atoll.dev/unreachable" || got.Effect != corev1.TaintEffectNoExecute || !got.TimeAdded.Equal(&metav1.Time{Time: start}) {
		t.Errorf("%+v", got)
	}
	if again := WithoutTaint(tainted); len(again.Spec.Taints) != 1 || again.Spec.Taints[0] != mine || len(tainted.Spec.Taints) != 2 {
		t.Errorf("%+v", again.Spec.Taints)
	}
}

func TestNextTaintTime(t *testing.T) {
	s := &v1alpha1.ClusterFailover{After: metav1.Duration{Duration: time.Hour}}
	if at, lost := NextTaintTime(newTestCluster(), s); !lost || !at.Equal(start.Add(time.Hour)) {
		t.Errorf("%s, %t", at, lost)
	}
	if _, lost := NextTaintTime(newTestCluster(), nil); lost {
		t.Error("without a failover")
	}
	if _, lost := NextTaintTime(WithTaint(newTestCluster(), unreachable, start), s); lost {
		t.Error("tainted")
	}
}

// A hub that is cut off loses its streams at once, and clusters that check in seem ready for a while: it taints none.
func TestAHubThatIsCutOffLosesItsStreams(t *testing.T) {
	f, terms := NewFleet(start), fiveMinutes()
	for i := range 10 {
		f.SetMember(fmt.Sprint("c", i), Member{zone: fmt.Sprint("z", i), since: start, checksIn: i >= 4}, start)
	}
	due := start.Add(time.Hour)
	for i := range 4 {
		f.loseMember(fmt.Sprint("c", i), start)
	}
	for i := range 4 {
		if what, _ := f.JudgeCluster(fmt.Sprint("c", i), terms, due); what != Nothing {
			t.Errorf("c%d: %d", i, what)
		}
	}
	if names := f.TakeResumable(terms); names != nil {
		t.Errorf("%v resume although nothing changed", names)
	}
	for _, back := range []string{"c2", "c3"} {
		m := f.byName[back]
		m.loss = notLost
		f.SetMember(back, m, due)
	}
	if names := f.TakeResumable(terms); len(names) != 2 {
		t.Errorf("%v resume", names)
	}
	if what, _ := f.JudgeCluster("c0", terms, due); what != AddTaint {
		t.Errorf("two of four: %d", what)
	}
}
