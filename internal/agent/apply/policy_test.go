package apply

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

const (
	noConfigMaps = `{kinds: {denied: [{group: "", kinds: [ConfigMap]}]}}`
	keepThem     = `{kinds: {denied: [{group: "", kinds: [ConfigMap]}]}, removal: Deny}`
	deniedText   = "AgentPolicy agent (generation 1) does not allow kind ConfigMap (spec.kinds.denied): the administrator of this cluster must allow it, or it must be placed elsewhere"
)

// deniedFailure is the failure of an object that the policy denies.
func deniedFailure(text string) *Failure {
	return &Failure{Reason: atoll.ReasonDeniedByPolicy, Message: text, First: 10 * time.Minute, Most: 10 * time.Minute}
}

// Another policy makes the agent decide again about everything. Denied objects are tried at once.
func TestAnotherPolicyIsWeighedAtOnce(t *testing.T) {
	named := func(name string) ownership.Record {
		r := wantedRecord(confItem("x"))
		r.Key.Name = name
		return r
	}
	later := testNow.Add(time.Hour)
	for name, c := range map[string]struct {
		call func(*stubEngine)
		want []string // due
	}{
		"another policy":                {func(e *stubEngine) { e.ReevaluateAgentPolicy() }, []string{"ConfigMap/denied", "ConfigMap/elsewhere", "ConfigMap/fine", "Namespace/shop"}},
		"other labels of the namespace": {func(e *stubEngine) { e.NamespaceLabelsChanged("shop") }, []string{"ConfigMap/denied", "ConfigMap/fine", "Namespace/shop"}},
		"labels of another namespace":   {func(e *stubEngine) { e.NamespaceLabelsChanged("blog") }, []string{"ConfigMap/elsewhere"}},
		"labels of an unknown one":      {func(e *stubEngine) { e.NamespaceLabelsChanged("wiki") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := named("elsewhere")
			elsewhere.Key.Namespace = "blog"
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, named("denied"), named("wrong"), named("fine"), elsewhere})
			e.holdTask(shopNamespace.Key)
			waiting := map[string]*task{}
			for key, reason := range map[string]atoll.Reason{"denied": atoll.ReasonDeniedByPolicy, "wrong": atoll.ReasonInvalid} {
				task := e.holdTask(named(key).Key)
				task.due, task.at, task.failures, task.failure = true, later, 4, &Failure{Reason: reason}
				waiting[key] = task
			}
			e.observed[named("fine").Key] = &observation{}
			for range 2 {
				c.call(e)
			}
			concerned := slices.Contains(c.want, "ConfigMap/denied")
			if denied := waiting["denied"]; denied.at.IsZero() != concerned || (denied.failures == 0) != concerned || !concerned && denied.weigh {
				t.Errorf("what was denied is %+v", denied)
			}
			if wrong := waiting["wrong"]; !wrong.at.Equal(later) || wrong.failures != 4 || wrong.weigh != concerned {
				t.Errorf("what is wrong is %+v", wrong)
			}
			waiting["wrong"].due, waiting["denied"].due = false, concerned
			if due := e.listDue(); !slices.Equal(due, c.want) || e.isAwake() != (c.want != nil) {
				t.Errorf("%v is due, want %v", due, c.want)
			}
			if e.observed[named("fine").Key].stale != concerned {
				t.Errorf("the observation is stale: %t", !concerned)
			}
		})
	}
}

// An act is permitted by the rule for its kind: applies, and deletions of what is denied where the policy states it.
func TestActsArePermittedByTheirKind(t *testing.T) {
	apply, removal := deniedFailure(deniedText), deniedFailure(deniedText+"; nor may it be removed (spec.removal)")
	for verb, want := range map[ownership.Verb]*Failure{
		ownership.Apply: apply, ownership.Replace: apply, observeItem: apply,
		ownership.Delete: removal, ownership.DeleteNamespace: removal, ownership.Release: removal,
		ownership.Nothing: nil, ownership.Search: nil, keepNamespace: nil,
	} {
		t.Run(string(verb), func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), nil)
			e.limitAgent(t, keepThem)
			p := pendingWork{Step: ownership.Step{Key: confKey, Verb: verb}}
			expectFailure(t, e.checkPermitted(t.Context(), p), want)
			if p.correct = true; verb == ownership.Nothing {
				want = apply
			}
			expectFailure(t, e.checkPermitted(t.Context(), p), want)
			e.limitAgent(t, noConfigMaps)
			if want == removal {
				want = nil
			}
			expectFailure(t, e.checkPermitted(t.Context(), p), want)
			p.Key.Kind = "Pod"
			expectFailure(t, e.checkPermitted(t.Context(), p), nil)
		})
	}
}

// While the policy holds changes, each act that writes waits until the hold may have ended, and reads go on.
func TestActsThatWaitForAHold(t *testing.T) {
	writes := []ownership.Verb{ownership.Apply, ownership.Replace, ownership.Expire, ownership.Delete, ownership.DeleteNamespace, ownership.Release, keepNamespace}
	for _, verb := range append([]ownership.Verb{ownership.Nothing, ownership.Search, observeItem}, writes...) {
		t.Run(string(verb), func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), nil)
			for spec, most := range map[string]time.Duration{
				"{changes: {hold: {reason: year end}}}": deniedRest,
				"{changes: {hold: {reason: year end, until: '" + time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + "'}}}": time.Minute,
			} {
				e.limitAgent(t, spec)
				p := pendingWork{Step: ownership.Step{Key: confKey, Verb: verb}}
				got := e.checkPermitted(t.Context(), p)
				if isHeld := got != nil && got.Waits && got.Reason == atoll.ReasonHeldByPolicy && got.Most <= most && got.Most == got.First; isHeld != slices.Contains(writes, verb) || !isHeld && got != nil {
					t.Errorf("%s: %+v", spec, got)
				}
			}
		})
	}
}

// The namespace is read only for a policy that selects by labels. Its labels decide unless Atoll made it.
func TestTheNamespaceOfAPolicyIsRead(t *testing.T) {
	const byLabels = "{namespaces: {selector: {matchLabels: {hub: welcome}}}}"
	namespace := func(labels string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: blog, labels: {" + labels + "}}"
	}
	inBlog := confKey
	inBlog.Namespace = "blog"
	for name, c := range map[string]struct {
		spec, live string
		key        atoll.ItemKey
		refused    refusals
		want       policy.Namespace
		fails      *Failure
	}{
		"labels do not count":   {noConfigMaps, namespace("hub: welcome"), inBlog, nil, policy.Namespace{}, nil},
		"labels count":          {byLabels, namespace("hub: welcome"), inBlog, nil, policy.Namespace{Labels: labels.Set{"hub": "welcome"}}, nil},
		"the namespace itself":  {byLabels, namespace("hub: welcome"), atoll.NamespaceKey("blog"), nil, policy.Namespace{Labels: labels.Set{"hub": "welcome"}}, nil},
		"without labels":        {byLabels, namespace(""), inBlog, nil, policy.Namespace{Labels: labels.Set{}}, nil},
		"Atoll made it":         {byLabels, namespace(atoll.LabelBundleUID + ": b1"), inBlog, nil, policy.Namespace{Labels: labels.Set{atoll.LabelBundleUID: "b1"}, Ours: true}, nil},
		"it is missing":         {byLabels, "", inBlog, nil, policy.Namespace{}, nil},
		"the member is silent":  {byLabels, namespace(""), inBlog, refusals{"GET blog": memberBusy()}, policy.Namespace{}, busyFailure},
		"silent, and no labels": {noConfigMaps, namespace(""), inBlog, refusals{"GET blog": memberBusy()}, policy.Namespace{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{c.live}
			}
			e := newStubEngine(t, refuseSome(newMemoryMember(t, objects...), c.refused), nil)
			e.limitAgent(t, c.spec)
			got, f := e.readPolicyNamespace(t.Context(), e.o.Policy(), c.key)
			expectFailure(t, f, c.fails)
			if got.Ours != c.want.Ours || (got.Labels == nil) != (c.want.Labels == nil) || !labels.Equals(got.Labels, c.want.Labels) {
				t.Errorf("the namespace is %+v, want %+v", got, c.want)
			}
			if c.fails != nil {
				expectFailure(t, e.mayApply(t.Context(), c.key, ""), c.fails)
			}
		})
	}
}

// An applied object that is denied now stays, and says so until it is allowed again.
func TestAnAppliedObjectThatIsDeniedNowSaysSo(t *testing.T) {
	busy := refusals{}
	e := newStubEngine(t, refuseSome(newMemoryMember(t, liveConf("x")), busy), []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
	for _, c := range []struct {
		spec    string
		busy    bool
		fails   *Failure
		says    string
		pending bool
	}{
		{spec: noConfigMaps, says: deniedText},
		{spec: "{namespaces: {selector: {matchLabels: {hub: welcome}}}}", busy: true, fails: busyFailure, says: deniedText, pending: true},
		{spec: "{}"},
	} {
		e.limitAgent(t, c.spec)
		if delete(busy, "GET shop"); c.busy {
			busy["GET shop"] = memberBusy()
		}
		e.holdTask(confKey).weigh = true
		expectFailure(t, e.workOnKey(t.Context(), confKey), c.fails)
		if e.forbidden[confKey] != c.says || e.holdTask(confKey).weigh != c.pending {
			t.Errorf("with %s it says %q, and is weighed again: %t", c.spec, e.forbidden[confKey], e.holdTask(confKey).weigh)
		}
	}
}

// A namespace that the policy denies is the reason of what should be in it.
func TestADeniedNamespaceIsTheReasonOfItsObjects(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	expectFailure(t, e.deniedNamespaceFailure("shop"), nil)
	task := e.holdTask(shopNamespace.Key)
	expectFailure(t, e.deniedNamespaceFailure("shop"), nil)
	task.failure = &Failure{Reason: atoll.ReasonForbidden, Message: "no"}
	expectFailure(t, e.deniedNamespaceFailure("shop"), nil)
	task.failure = deniedFailure("no")
	expectFailure(t, e.deniedNamespaceFailure("shop"), deniedFailure("namespace shop is not there, and no"))
	expectFailure(t, task.failure, deniedFailure("no"))
	expectFailure(t, e.deniedNamespaceFailure("blog"), nil)
}

// Objects are written in the name of the ServiceAccount that the policy names for their namespace.
func TestWritesAreMadeAsTheNamedServiceAccount(t *testing.T) {
	for spec, want := range map[string]string{
		"{serviceAccounts: [{namespaces: [shop], name: deployer}]}": "system:serviceaccount:shop:deployer",
		"{serviceAccounts: [{namespaces: [blog], name: deployer}]}": "",
		"{}": "",
	} {
		as, member := "none", newMemoryMember(t)
		e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				as = r.Header.Get("Impersonate-User")
			}
			member.ServeHTTP(w, r)
		}), []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")))
		e.limitAgent(t, spec)
		if f := settleKey(t, e.MemberApplier, confKey); f != nil || as != want {
			t.Errorf("by %s it is written as %q, want %q, failure %+v", spec, as, want, f)
		}
	}
}

// A correction that the policy denies is done once the policy allows it.
func TestADeniedCorrectionIsKeptInMind(t *testing.T) {
	api := newMemoryMember(t, liveConf("y"))
	e := newStubEngine(t, api, []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
	e.limitAgent(t, noConfigMaps)
	e.holdTask(confKey).correct = true
	for range 2 {
		expectFailure(t, e.workOnKey(t.Context(), confKey), deniedFailure(deniedText))
	}
	api.expectWrites(t)
	e.limitAgent(t, "{}")
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
	if e.holdTask(confKey).correct {
		t.Error("the correction is still to be done")
	}
}
