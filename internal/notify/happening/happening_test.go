package happening

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// newSubject returns an object that was made an hour before noon, by its spec and its status in YAML.
func newSubject(t *testing.T, kind, text string) *Subject {
	t.Helper()
	s := &Subject{Kind: kind, Meta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID("uid of the " + kind), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	read := func(out any) {
		if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	switch kind {
	case KindSource:
		var x struct {
			Suspend bool                  `json:"suspend"`
			Status  v1alpha1.SourceStatus `json:"status"`
		}
		read(&x)
		s.Source, s.IsSuspended = &x.Status, x.Suspend
	case KindCluster:
		var x struct {
			Status v1alpha1.ClusterStatus `json:"status"`
		}
		read(&x)
		s.Cluster, s.Meta.Namespace = &x.Status, ""
	default:
		var x struct {
			Spec   v1alpha1.BundleSpec   `json:"spec"`
			Status v1alpha1.BundleStatus `json:"status"`
		}
		read(&x)
		s.Bundle = &BundleState{&x.Spec, &x.Status}
	}
	return s
}

// newCondition returns a condition in YAML, which has its status since some minutes after noon.
func newCondition(kind, status, reason string, minute int) string {
	return fmt.Sprintf("{type: %s, status: '%s', reason: %s, message: 'message of %s', lastTransitionTime: '%s'}", kind, status, reason, reason, noon.Add(time.Duration(minute)*time.Minute).Format(time.RFC3339))
}

func statusOf(more string, conditions ...string) string {
	return "{status: {" + more + "conditions: [" + strings.Join(conditions, ", ") + "]}}"
}

// allEvents has all types of events.
func allEvents() map[v1alpha1.NotificationEvent]bool {
	all := map[v1alpha1.NotificationEvent]bool{}
	for _, info := range ListTypes() {
		all[info.Event] = true
	}
	return all
}

// listNames returns the types of events.
func listNames(events []Event) string {
	var names []string
	for _, e := range events {
		names = append(names, string(e.Type))
	}
	return strings.Join(names, " ")
}

const waiting = "rollout: {currentStage: canary, reason: WaitsForApproval, actor: a person that may approve the rollout, message: an approval, since: '2026-01-02T12:01:00Z'}, revision: web-r2, "

// Each step is an object as it is next. The events are those of the change from the step before; the first step is the first look, an hour after
// which nothing is news.
var transitions = map[string]struct {
	kind  string
	steps []string
	want  []string
}{
	"a Source fails and is mended": {KindSource, []string{
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, seenCommit: b, ", newCondition("Rendered", "False", "ContentInvalid", 1), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, seenCommit: b, ", newCondition("Rendered", "False", "ContentInvalid", 1), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, seenCommit: c, ", newCondition("Rendered", "False", "ContentInvalid", 1), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, seenCommit: b, ", newCondition("Rendered", "True", "Rendered", 3), newCondition("Applied", "True", "Applied", -90)),
	}, []string{"", "SourceFailed", "", "SourceFailed", "SourceApplied"}},
	"commits, and the return to an earlier one": {KindSource, []string{
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: b, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
	}, []string{"", "SourceApplied", "SourceApplied", ""}},
	"an object is not applied": {KindSource, []string{
		statusOf("", newCondition("Rendered", "Unknown", "NotDetermined", -90), newCondition("Applied", "Unknown", "NotDetermined", -90)),
		statusOf("seenCommit: a, ", newCondition("Rendered", "True", "Rendered", 1), newCondition("Applied", "False", "NotApplied", 1)),
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", 1), newCondition("Applied", "True", "Applied", 2)),
	}, []string{"", "SourceFailed", "SourceApplied"}},
	"a suspended Source has not failed": {KindSource, []string{
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", -90), newCondition("Applied", "True", "Applied", -90)),
		statusOf("commit: a, ", newCondition("Rendered", "False", "Suspended", 1), newCondition("Applied", "True", "Applied", -90)),
		strings.Replace(statusOf("commit: a, ", newCondition("Rendered", "False", "RefMissing", 1), newCondition("Applied", "True", "Applied", -90)), "{", "{suspend: true, ", 1),
		statusOf("commit: a, ", newCondition("Rendered", "True", "Rendered", 3), newCondition("Applied", "True", "Applied", -90)),
	}, []string{"", "", "", ""}},
	"nothing is applied yet": {KindSource, []string{
		statusOf("", newCondition("Applied", "False", "NotRendered", 1)), statusOf("", newCondition("Rendered", "True", "Rendered", 2), newCondition("Applied", "False", "NotRendered", 1)),
	}, []string{"", ""}},
	"drift on the hub": {KindSource, []string{
		statusOf("", newCondition("InSync", "True", "InSync", -90)), statusOf("", newCondition("InSync", "False", "ChangedOnHub", 1)),
		statusOf("", newCondition("InSync", "True", "InSync", 2)), statusOf("", newCondition("InSync", "Unknown", "NotDetermined", 3)), statusOf("", newCondition("InSync", "True", "InSync", 4)),
	}, []string{"", "SourceDrifted", "SourceInSync", "", ""}},
	"degraded, progressing, ready": {KindBundle, []string{
		statusOf("", newCondition("Ready", "True", "Ready", -90)), statusOf("", newCondition("Ready", "False", "Progressing", 1)),
		statusOf("waitsFor: tokyo, ", newCondition("Ready", "False", "Degraded", 1)), statusOf("", newCondition("Ready", "False", "Progressing", 1)),
		statusOf("", newCondition("Ready", "False", "Degraded", 1)), statusOf("", newCondition("Ready", "True", "Ready", 5)), statusOf("", newCondition("Ready", "False", "Failed", 6)),
	}, []string{"", "", "BundleDegraded", "", "", "BundleRecovered", "BundleDegraded"}},
	"a change that succeeds is no recovery": {KindBundle, []string{
		statusOf("", newCondition("Ready", "True", "Ready", -90)), statusOf("", newCondition("Ready", "False", "Progressing", 1)), statusOf("", newCondition("Ready", "True", "Ready", 2)),
	}, []string{"", "", ""}},
	"a Bundle waits": {KindBundle, []string{
		statusOf(""), statusOf("wait: {reason: Degraded, actor: the application's owner, since: '2026-01-02T12:01:00Z'}, "),
		statusOf("wait: {reason: Degraded, actor: the application's owner, since: '2026-01-02T12:01:00Z'}, "), statusOf("wait: {reason: WaitsForApply, actor: the agent, since: '2026-01-02T12:02:00Z'}, "),
		statusOf("wait: {reason: Degraded, actor: the application's owner, since: '2026-01-02T12:03:00Z'}, "),
	}, []string{"", "BundleWaits", "", "", "BundleWaits"}},
	"a pause": {KindBundle, []string{
		"{}", "{spec: {pause: {by: ann, since: '2026-01-02T12:01:00Z', reason: Incident, message: 'no 4711'}}}", "{spec: {pause: {by: ann, since: '2026-01-02T12:01:00Z', message: 'no 4711'}}}",
		"{spec: {resume: {by: bob, at: '2026-01-02T12:02:00Z'}}}",
	}, []string{"", "RolloutPaused", "", "RolloutResumed"}},
	"an approval": {KindBundle, []string{
		"{spec: {rollout: {type: Staged}}}", "{spec: {rollout: {type: Staged}}, status: {" + waiting + "}}", "{spec: {rollout: {type: Staged}}, status: {" + waiting + "}}",
		"{spec: {rollout: {type: Staged}}, status: {rollout: {currentStage: all, reason: WaitsForStage, since: '2026-01-02T12:02:00Z'}, revision: web-r2}}",
		"{spec: {rollout: {type: Staged}}, status: {rollout: {stages: []}, revision: web-r2}}", "{spec: {rollout: {type: Staged}}, status: {rollout: {stages: []}, revision: web-r2}}",
	}, []string{"", "RolloutWaitsForApproval", "", "", "RolloutCompleted", ""}},
	"a rollout that no policy states": {KindBundle, []string{
		"{}", "{status: {rollout: {currentStage: rest, reason: MaxUnavailableReached}, revision: web-r2}}", "{status: {rollout: {stages: []}, revision: web-r2}}",
	}, []string{"", "", ""}},
	"a rollout whose clusters are suspended is not complete": {KindBundle, []string{
		"{spec: {rollout: {}}, status: {rollout: {currentStage: rest, reason: WaitsForStage}, revision: web-r2}}", "{spec: {rollout: {}}, status: {rollout: {reason: DispatchingSuspended}, revision: web-r2}}",
	}, []string{"", ""}},
	"a rollout fails": {KindClusterBundle, []string{
		"{}", "{status: {rollout: {currentStage: canary, reason: StageFailed, since: '2026-01-02T12:01:00Z'}}}", "{status: {rollout: {currentStage: canary, reason: RolledBack, since: '2026-01-02T12:02:00Z'}}}",
	}, []string{"", "RolloutFailed", "RolloutFailed"}},
	"a removal": {KindBundle, []string{
		statusOf("", newCondition("RemovalHeld", "False", "Released", -90)), statusOf("", newCondition("RemovalHeld", "True", "RemovalHeld", 1)), statusOf("", newCondition("RemovalHeld", "False", "Released", 2)),
		statusOf("", newCondition("RemovalHeld", "True", "RemovalHeld", 3)),
	}, []string{"", "RemovalWaitsForConfirmation", "", "RemovalWaitsForConfirmation"}},
	"a cluster joins": {KindCluster, []string{
		statusOf(""), statusOf("", newCondition("Accepted", "False", "WaitsForAdministrator", 1), newCondition("Ready", "Unknown", "NotAccepted", 1)),
		statusOf("", newCondition("Accepted", "True", "Accepted", 2), newCondition("Ready", "Unknown", "NeverConnected", 1)), statusOf("", newCondition("Accepted", "True", "Accepted", 2), newCondition("Ready", "Unknown", "WaitsForInventory", 1)),
		statusOf("", newCondition("Accepted", "True", "Accepted", 2), newCondition("Ready", "True", "AgentConnected", 3)),
	}, []string{"", "ClusterWaitsForAcceptance", "", "", "ClusterReady"}},
	"a cluster is lost and comes back": {KindCluster, []string{
		statusOf("", newCondition("Ready", "True", "AgentConnected", -90)), statusOf("", newCondition("Ready", "Unknown", "StreamLost", 1)), statusOf("", newCondition("Ready", "False", "MemberNotReady", 2)),
		statusOf("", newCondition("Ready", "True", "AgentConnected", 3)), statusOf("", newCondition("Ready", "Unknown", "CheckInsMissed", 4)),
	}, []string{"", "ClusterDisconnected", "ClusterNotReady", "ClusterReady", "ClusterDisconnected"}},
	"a cluster is removed": {KindCluster, []string{
		statusOf(""), statusOf("removal: {bundles: 1, gone: 0, plan: p1}, ", newCondition("Removing", "True", "WaitsForConfirmation", 1)),
		statusOf("removal: {bundles: 2, gone: 0, plan: p2}, ", newCondition("Removing", "True", "WaitsForConfirmation", 1)), statusOf("removal: {bundles: 2, gone: 0, confirmed: p2}, ", newCondition("Removing", "True", "BundlesLeave", 1)),
	}, []string{"", "ClusterRemovalWaitsForConfirmation", "ClusterRemovalWaitsForConfirmation", ""}},
}

func TestTransitions(t *testing.T) {
	seen := map[string]bool{}
	for name, c := range transitions {
		t.Run(name, func(t *testing.T) {
			l := Look{Events: allEvents(), History: &History{}, Floor: noon.Add(-30 * time.Minute), Now: noon}
			var memory Memory
			for i, text := range c.steps {
				var news []Event
				news, memory = l.ListNews(memory, newSubject(t, c.kind, text))
				var names []string
				for _, e := range news {
					if e.Type != v1alpha1.EventBundleWaits || name == "a Bundle waits" {
						names = append(names, string(e.Type))
					}
					if seen[string(e.Type)] = true; e.Kind != c.kind || e.Name != "web" || e.UID == "" || e.Time.IsZero() || TitleOf(e.Type) == string(e.Type) {
						t.Errorf("step %d: the event %+v", i, e)
					}
					l.History.Add(&e)
				}
				if got := strings.Join(names, " "); got != c.want[i] {
					t.Errorf("step %d: %q, want %q", i, got, c.want[i])
				}
				l.Now = l.Now.Add(time.Minute)
			}
		})
	}
	for event := range allEvents() {
		if !seen[string(event)] {
			t.Errorf("no transition has %s", event)
		}
	}
}

// A hub that starts sends what began later than the Notification and was not handled. It sends nothing twice.
func TestAHubThatStarts(t *testing.T) {
	failed := statusOf("seenCommit: b, ", newCondition("Rendered", "False", "ContentInvalid", 1))
	mended := statusOf("commit: c, ", newCondition("Rendered", "True", "Rendered", 3), newCondition("Applied", "True", "Applied", 3))
	first := func(h *History, text string) (string, []Event) {
		l := Look{Events: allEvents(), History: h, Floor: h.Before, Now: noon.Add(time.Hour)}
		news, _ := l.ListNews(nil, newSubject(t, KindSource, text))
		return listNames(news), news
	}
	h := &History{Before: noon.Add(-2 * time.Hour)}
	names, news := first(h, failed)
	if names != "SourceFailed" || !news[0].Time.Equal(noon.Add(time.Minute)) || news[0].Commit != "b" {
		t.Fatalf("an event that was not sent: %+v", news)
	}
	h.Add(&news[0])
	if names, _ := first(h, failed); names != "" {
		t.Errorf("an event that was sent is sent again: %s", names)
	}
	names, ends := first(h, mended)
	if names != "SourceApplied" || ends[0].Ends != news[0].ID || ends[0].MessageID() == news[0].MessageID() {
		t.Fatalf("the end of an event that was sent: %+v", ends)
	}
	h.Add(&ends[0])
	if names, _ := first(h, mended); names != "" {
		t.Errorf("the end is sent again: %s", names)
	}
	if names, _ := first(&History{Before: noon.Add(2 * time.Minute)}, failed); names != "" {
		t.Errorf("an event from before the Notification is sent: %s", names)
	}
	// It was created after the Notification, so its first commit is news. Without the time of the commit, nothing else is known.
	if names, _ := first(&History{Before: noon.Add(-2 * time.Hour)}, mended); names != "SourceApplied" {
		t.Errorf("the first commit of a new Source: %q", names)
	}
	if names, _ := first(&History{Before: noon}, mended); names != "" {
		t.Errorf("the commit of an older Source: %q", names)
	}
}

// A recovery is news only where the failure was found, and it needs no Notification of the failure.
func TestOnlyTheStatedEventsAreSent(t *testing.T) {
	l := Look{Events: map[v1alpha1.NotificationEvent]bool{v1alpha1.EventBundleRecovered: true}, History: &History{}, Now: noon}
	var memory Memory
	for i, c := range []struct{ text, want string }{
		{statusOf("", newCondition("Ready", "True", "Ready", 1)), ""}, {statusOf("", newCondition("Ready", "False", "Degraded", 2)), ""}, {statusOf("", newCondition("Ready", "True", "Ready", 3)), "BundleRecovered"},
	} {
		var news []Event
		if news, memory = l.ListNews(memory, newSubject(t, KindBundle, c.text)); listNames(news) != c.want {
			t.Errorf("step %d: %q, want %q", i, listNames(news), c.want)
		}
	}
	if news, _ := l.ListNews(nil, newSubject(t, KindSource, "{}")); len(news) > 0 {
		t.Errorf("a Source has events of Bundles: %v", news)
	}
}

// The history is bounded. An event that it has no longer is not sent at a start.
func TestHistoryIsBounded(t *testing.T) {
	h := &History{Before: noon}
	var events []Event
	for i := range 100 {
		events = append(events, Event{Type: v1alpha1.EventClusterDisconnected, ID: fmt.Sprint("id ", i), UID: fmt.Sprint("uid ", i), Time: noon.Add(time.Duration(i%50) * time.Minute)})
		h.Add(&events[i])
		h.Add(&events[i])
	}
	if len(h.Handled) != maxHandled {
		t.Fatalf("%d events are kept", len(h.Handled))
	}
	for i := range events {
		if !h.Has(events[i].ID) && events[i].Time.After(h.Before) {
			t.Errorf("event %d of %s is forgotten, and began after %s", i, events[i].Time, h.Before)
		}
	}
	if !h.Before.Equal(noon.Add(33 * time.Minute)) {
		t.Errorf("events up to %s are not sent", h.Before)
	}
}

func TestSelectedObjects(t *testing.T) {
	m := &metav1.ObjectMeta{Name: "shop-web", Labels: map[string]string{"team": "shop"}}
	for text, want := range map[string]bool{
		"{}": true, "{names: [shop-web]}": true, "{names: [shop]}": false, "{names: ['shop*']}": true, "{names: ['*web']}": true, "{names: ['s*p*b']}": true, "{names: ['s*x*b']}": false,
		"{names: ['shop-web*web']}": false, "{names: ['*']}": true, "{names: [other, 'shop-*']}": true, "{labelSelector: {matchLabels: {team: shop}}}": true,
		"{labelSelector: {matchLabels: {team: rival}}}": false, "{names: [shop-web], labelSelector: {matchLabels: {team: rival}}}": false, "{labelSelector: {matchExpressions: [{key: a, operator: Bad}]}}": false,
	} {
		var o v1alpha1.NotificationObjects
		if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if got := MatchesObjects(&o, m); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if !MatchesObjects(nil, m) {
		t.Error("without a selection an object is left out")
	}
}

// The table of docs/notifications.md has each type of events, with its meaning.
func TestPageHasEachEvent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/notifications.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range ListTypes() {
		if row := fmt.Sprintf("| `%s` | %s |\n", info.Event, info.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("docs/notifications.md has no row\n%s", row)
		}
		if KindOf(info.Event) != info.Kind || info.Title == "" {
			t.Errorf("%s is of kind %q with the title %q", info.Event, info.Kind, info.Title)
		}
	}
	if KindOf(v1alpha1.NotificationEvent("Other")) != "" || KindOf(rolloutBegan) != "" || slices.Contains(slices.Collect(maps.Keys(allEvents())), rolloutBegan) {
		t.Error("a type is known that Notifications do not state")
	}
}
