package apply

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

// limitAgent what may be applied, by the spec of a policy; empty: no limits.
func (w *world) limitAgent(spec string) {
	w.t.Helper()
	var p *policy.Policy
	if spec != "" {
		text, err := yaml.YAMLToJSON([]byte("metadata: {name: agent, generation: 1}\nspec: " + spec))
		if err != nil {
			w.t.Fatal(err)
		}
		p = policy.ParsePolicy(text)
	}
	w.policy.Store(p)
	w.ReevaluateAgentPolicy()
}

func (w *world) configMap(name, value string) atoll.RenderedItem {
	return w.newItem("uid-"+name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\ndata: {a: "+value+"}")
}

// said of the item, in the status; false where nothing is.
func saidOf(s atoll.RowStatus, key atoll.ItemKey) (atoll.ItemStatus, bool) {
	for _, it := range s.Items {
		if it.Key == key {
			return it, true
		}
	}
	return atoll.ItemStatus{}, false
}

// expectDenied waits until the item is refused with the words.
func (w *world) expectDenied(bundle string, key atoll.ItemKey, words string) {
	w.t.Helper()
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, key)
		return ok && it.Error && it.Reason == atoll.ReasonDeniedByPolicy && strings.Contains(it.Message, words)
	})
}

func TestWhatThePolicyForbidsIsNotAppliedAndTheRestIs(t *testing.T) {
	w := newWorld(t)
	w.limitAgent(`{kinds: {denied: [{group: "", kinds: [Secret]}]}}`)
	secret := w.newItem("u2", "apiVersion: v1\nkind: Secret\nmetadata: {name: b}")
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a, secret))
	w.expectExists(a.Key)
	w.expectDenied("b1", secret.Key, "AgentPolicy agent (generation 1) does not allow kind Secret (spec.kinds.denied)")
	if w.get(secret.Key) != nil {
		t.Error("the Secret was made")
	}
	w.limitAgent("") // acts at once, although the next try is later
	w.waitForReady("b1", 1)
}

func TestWhatIsAppliedAndForbiddenNowStaysAsItIs(t *testing.T) {
	w := newWorld(t)
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.waitForReady("b1", 1)
	w.limitAgent("{namespaces: {denied: ['" + w.ns + "']}}")
	stays := func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && s.State == atoll.RowReady && it.Health == atoll.Healthy && it.Reason == atoll.ReasonDeniedByPolicy &&
			strings.HasPrefix(it.Message, "it stays as it is: AgentPolicy agent")
	}
	w.waitForStatus("b1", stays)
	// A restarted agent reports this too.
	w.stop()
	w.start()
	w.waitForStatus("b1", stays)

	// A user's change is not corrected, and is reported.
	w.patchObject(a.Key, `{"data":{"a":"y"}}`)
	w.expectDenied("b1", a.Key, "does not allow namespace")
	if got := w.get(a.Key).Object["data"].(map[string]any)["a"]; got != "y" {
		t.Errorf("it was corrected to %v", got)
	}
	w.limitAgent("{}")
	w.waitUntil("the object is corrected", func() (bool, string) {
		got := w.get(a.Key).Object["data"].(map[string]any)["a"].(string)
		return got == "x", got
	})
	s := w.waitForReady("b1", 1)
	if it, ok := saidOf(s, a.Key); ok {
		t.Errorf("something is still said of it: %+v", it)
	}

	// New content waits for the administrator, and what is there stays.
	w.limitAgent("{namespaces: {denied: ['" + w.ns + "']}}")
	w.waitForStatus("b1", stays)
	w.storeManifest(newManifest("b1", 2, w.configMap("a", "z")))
	w.expectDenied("b1", a.Key, "does not allow namespace")
	if got := w.get(a.Key).Object["data"].(map[string]any)["a"]; got != "x" {
		t.Errorf("it has %v", got)
	}
}

func TestWhatAtollAppliedGoesUnlessRemovalIsDenied(t *testing.T) {
	w := newWorld(t)
	a, b := w.configMap("a", "x"), w.configMap("b", "x")
	w.storeManifest(newManifest("b1", 1, a, b))
	w.waitForReady("b1", 1)
	w.limitAgent("{namespaces: {denied: ['" + w.ns + "']}, removal: Deny}")
	m := newManifest("b1", 2, a)
	m.Tombstones = []atoll.Tombstone{{Key: b.Key, UID: b.UID}}
	w.storeManifest(m)
	w.expectDenied("b1", b.Key, "nor may it be removed (spec.removal)")
	w.expectHolds("the object is there", 300*time.Millisecond, func() (bool, string) { return w.get(b.Key) != nil, "it is gone" })
	w.limitAgent("{namespaces: {denied: ['" + w.ns + "']}}")
	w.expectAbsent(b.Key)
}

// expectHeld waits until the item waits for the hold of the policy, without an error.
func (w *world) expectHeld(bundle string, key atoll.ItemKey) {
	w.t.Helper()
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, key)
		return ok && !it.Error && s.State == atoll.RowProgressing && s.WaitReason() == atoll.ReasonHeldByPolicy && it.Reason == atoll.ReasonHeldByPolicy &&
			strings.Contains(it.Message, "AgentPolicy agent (generation 1) holds all changes in this cluster (spec.changes.hold): year end")
	})
}

// While the policy holds changes, nothing is made, changed, corrected or deleted, and all of it happens afterwards. An object that is as ordered stays ready.
func TestAHoldOfThePolicy(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.configMap("a", "x"), w.configMap("b", "x"), w.configMap("c", "x")
	w.storeManifest(newManifest("b1", 1, a, b))
	w.waitForReady("b1", 1)
	w.storeManifest(newManifest("b2", 1, c))
	w.waitForReady("b2", 1)
	const hold = "{changes: {hold: {reason: year end}}}"
	w.limitAgent(hold)
	m := newManifest("b1", 2, w.configMap("a", "w"), w.configMap("d", "x"))
	m.Tombstones = []atoll.Tombstone{{Key: b.Key, UID: b.UID}}
	w.storeManifest(m)
	for _, key := range []atoll.ItemKey{a.Key, b.Key, m.Items[1].Key} {
		w.expectHeld("b1", key)
	}
	if s, _ := w.lastStatus("b2"); s.State != atoll.RowReady {
		t.Errorf("another Bundle is %s", s.State)
	}
	w.stop() // a restarted agent holds them, too
	w.start()
	w.patchObject(c.Key, `{"data":{"a":"z"}}`)
	w.expectHeld("b2", c.Key)
	w.expectHeld("b1", m.Items[1].Key)
	valueOf := func(key atoll.ItemKey) string {
		if got := w.get(key); got != nil {
			return got.Object["data"].(map[string]any)["a"].(string)
		}
		return "gone"
	}
	for key, want := range map[atoll.ItemKey]string{a.Key: "x", b.Key: "x", c.Key: "z", m.Items[1].Key: "gone"} {
		if got := valueOf(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	w.limitAgent("{}")
	w.waitForReady("b1", 2)
	w.expectAbsent(b.Key)
	w.waitUntil("the object is corrected", func() (bool, string) { return valueOf(c.Key) == "x", valueOf(c.Key) })
	if got := valueOf(a.Key); got != "w" {
		t.Errorf("it has %s", got)
	}
}

// A first copy waits as well, with its namespace, and a removal of the whole.
func TestAHoldOfAFirstCopy(t *testing.T) {
	w := newWorld(t)
	w.limitAgent("{changes: {hold: {reason: year end}}}")
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.expectHeld("b1", a.Key)
	if w.get(atoll.NamespaceKey(w.ns)) != nil {
		t.Error("the namespace is made")
	}
	w.limitAgent("")
	w.waitForReady("b1", 1)
	w.limitAgent("{changes: {hold: {reason: year end}}}")
	m := newManifest("b1", 2)
	m.Remove = true
	w.storeManifest(m)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		return s.Generation == 2 && strings.Contains(s.RemovalBlocker(), "ConfigMap a: AgentPolicy agent (generation 1) holds all changes")
	})
	w.limitAgent("")
	w.expectAbsent(a.Key)
}

func TestANamespaceThatMayNotBeMadeIsTheReason(t *testing.T) {
	w := newWorld(t)
	w.limitAgent("{clusterScoped: Deny}")
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.expectDenied("b1", a.Key, "namespace "+w.ns+" is not there, and AgentPolicy agent (generation 1) does not allow objects outside of namespaces")
	w.limitAgent("{clusterScoped: NamespacesOnly}")
	w.waitForReady("b1", 1)
}

func TestLabelsOfANamespaceThatMayNotChangeAreSaid(t *testing.T) {
	w := newWorld(t)
	a := w.configMap("a", "x")
	labelled := func(generation int64, team string) atoll.Manifest {
		m := newManifest("b1", generation, a)
		m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": team}}}
		return m
	}
	w.storeManifest(labelled(1, "x"))
	w.waitForReady("b1", 1)
	w.limitAgent("{clusterScoped: Deny}")
	w.storeManifest(labelled(2, "y"))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && s.State == atoll.RowReady && it.Reason == atoll.ReasonDeniedByPolicy &&
			strings.HasPrefix(it.Message, "labels and annotations of namespace "+w.ns+" stay as they are: AgentPolicy agent")
	})
	ns := atoll.NamespaceKey(w.ns)
	if got := w.get(ns).GetLabels()["team"]; got != "x" {
		t.Errorf("the namespace is of team %s", got)
	}
	w.limitAgent("{clusterScoped: NamespacesOnly}")
	w.waitUntil("the namespace is relabelled", func() (bool, string) {
		got := w.get(ns).GetLabels()["team"]
		return got == "y", got
	})
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		_, said := saidOf(s, a.Key)
		return s.State == atoll.RowReady && !said
	})
}

func TestNamespacesAreSelectedByLabelsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.limitAgent("{namespaces: {selector: {matchLabels: {hub: welcome}}}}")
	w.makeNamespace()
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.expectDenied("b1", a.Key, "does not allow namespace "+w.ns)
	ns := atoll.ItemKey{Kind: "Namespace", Name: w.ns}
	w.patchObject(ns, `{"metadata":{"labels":{"hub":"welcome"}}}`)
	w.NamespaceLabelsChanged(w.ns)
	w.waitForReady("b1", 1)
	w.patchObject(ns, `{"metadata":{"labels":{"hub":null}}}`)
	w.NamespaceLabelsChanged(w.ns) // what is there stays, and is said to
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && !it.Error && it.Reason == atoll.ReasonDeniedByPolicy
	})
	w.patchObject(ns, `{"metadata":{"labels":{"hub":"welcome"}}}`)
	w.NamespaceLabelsChanged(w.ns)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { _, said := saidOf(s, a.Key); return !said })
	w.patchObject(ns, `{"metadata":{"labels":{"`+atoll.LabelBundleUID+`":"b9"}}}`)
	w.storeManifest(newManifest("b1", 2, w.configMap("a", "y")))
	w.expectDenied("b1", a.Key, "does not allow namespace "+w.ns)
}

// TestWritesAreMadeInTheNameOfTheServiceAccount: its rights count, and the refusal says
// which are missing.
func TestWritesAreMadeInTheNameOfTheServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.limitAgent("{serviceAccounts: [{namespaces: ['" + w.ns + "'], name: deployer}]}")
	a := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, a))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && it.Error && it.Reason == atoll.ReasonForbidden &&
			strings.HasPrefix(it.Message, "this cluster's RBAC forbids ServiceAccount "+w.ns+"/deployer, as which the agent writes there, to patch configmaps") &&
			strings.Contains(it.Message, "{apiGroups: [\"\"], resources: [configmaps]")
	})
	w.createObject("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules:\n- {apiGroups: [\"\"], resources: [configmaps], verbs: [create, patch, delete]}")
	w.createObject("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: deployer}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}\nsubjects:\n- {kind: ServiceAccount, name: deployer, namespace: " + w.ns + "}")
	w.waitForReady("b1", 1)
	m := newManifest("b1", 2)
	m.Tombstones = []atoll.Tombstone{{Key: a.Key, UID: a.UID}}
	w.storeManifest(m)
	w.expectAbsent(a.Key)
}

func TestWhatLimitsTheAgentIsNoHubs(t *testing.T) {
	w := newWorld(t)
	own := w.newItem("u1", "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: atoll-system}")
	w.storeManifest(newManifest("b1", 1, own))
	w.expectDenied("b1", own.Key, "the agent's own")
}
