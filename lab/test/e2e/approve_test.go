package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/testwait"
)

const approvedTemplates = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: $NS}
data: {colour: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: $NS, annotations: {atoll.dev/drift: Report}}
data: {colour: blue}
`

const approvingPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: looked-at, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: conf}, {apiVersion: v1, kind: ConfigMap, name: other}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  itemRules: [{drift: Approve}]
`

var driftID = regexp.MustCompile(`, to approve as [0-9a-f]{16}`)

// approvableDriftIs is driftIs without IDs, each of which must be there.
func approvableDriftIs(t *testing.T, args, want string) func(context.Context) error {
	return func(context.Context) error {
		out := driftAge.ReplaceAllString(runCLI(t, append([]string{"drift"}, strings.Fields(args)...)...), "")
		if out = driftID.ReplaceAllString(out, " (ID)"); out != want {
			return fmt.Errorf("atoll drift %s prints\n%s\nwant\n%s", args, out, want)
		}
		return nil
	}
}

// reportedDriftID returns the ID of the only drift of an object in a cluster.
func reportedDriftID(t *testing.T, object, cluster, ns string) string {
	t.Helper()
	out := runCLI(t, "drift", object, "--cluster", cluster, "-n", ns, "-o", "json")
	text, _, _ := strings.Cut(out, "\nexit status")
	var found preview.Drifts
	if err := json.Unmarshal([]byte(text), &found); err != nil || len(found.Objects) != 1 {
		t.Fatalf("the drift as JSON: %v:\n%s", err, out)
	}
	return found.Objects[0].ID
}

// configMapDataIs returns a check of a value of a ConfigMap in a cluster.
func configMapDataIs(cluster, ns, name, key, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, name)
		if err != nil || o == nil {
			return fmt.Errorf("%s: no ConfigMap %s/%s (%v)", cluster, ns, name, err)
		}
		if got, _, err := unstructured.NestedString(o.Object, "data", key); err != nil || got != want {
			return fmt.Errorf("%s: ConfigMap %s/%s has %s=%q, want %q (%v)", cluster, ns, name, key, got, want, err)
		}
		return nil
	}
}

// patchInMember patches an object in a member, as its owner does by hand.
func patchInMember(t *testing.T, member, args string) {
	t.Helper()
	if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath(member), "", args); strings.Contains(out, "exit status") {
		t.Fatalf("kubectl %s in %s:\n%s", args, member, out)
	}
}

// A person looks at each drift before a cluster corrects it, the first objects included. An approval is good for
// what was reported, once.
func TestApprovedCorrections(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "approve")
	apply(t, ns, approvedTemplates)
	policy := strings.ReplaceAll(approvingPolicy, "$NS", ns)
	expectOutput(t, "the plan of the policy", runCLI(t, "plan", "-f", writeManifest(t, "policy.yaml", ns, policy)), "would not be written before a person approves")
	mustKubectl(t, policy, "apply -f -")

	conf, correct := "cm/conf -n "+ns, "ConfigMap "+ns+"/conf\n"
	both := correct + "  member1: missing (ID)\n  member2: missing (ID)\n\nexit status 2"
	testwait.UntilNil(t, "missing in both", approvableDriftIs(t, conf, both))
	testwait.UntilNil(t, "explained", explanationMatches(conf, `drift: Approve`, "atoll drift correct"))
	if err := inCluster("member1", "v1", "Namespace", "", ns, false)(t.Context()); err != nil {
		t.Errorf("a member made a namespace before an approval: %v", err)
	}

	// Commands with mistakes change nothing.
	for args, want := range map[string]string{
		conf:                                           "--all-clusters",
		"-n " + ns + " --all-clusters":                 "accepts 1 arg",
		conf + " --cluster nowhere":                    "nowhere",
		"cm/gone -n " + ns + " --all-clusters":         "nothing to correct",
		conf + " --all-clusters --id 0123456789abcdef": "0123456789abcdef",
		"cm/other -n " + ns + " --all-clusters":        "drift: Approve",
	} {
		out := runCLI(t, append([]string{"drift", "correct"}, strings.Fields(args)...)...)
		if !strings.Contains(out, want) || !strings.Contains(out, "exit status 1") {
			t.Errorf("atoll drift correct %s prints\n%s\nwant %q", args, out, want)
		}
	}
	if out := runAs(t, "stranger-"+ns, "drift", "correct", "cm/conf", "-n", ns, "--all-clusters"); !strings.Contains(out, "orbidden") {
		t.Errorf("a user without rights gets:\n%s", out)
	}

	id := reportedDriftID(t, "cm/conf", "member1", ns)
	expectOutput(t, "the approval", runCLI(t, "drift", "correct", "cm/conf", "-n", ns, "--cluster", "member1", "--id", id), "approved, to be corrected once", "member1: missing")
	testwait.UntilNil(t, "created in member1", configMapDataIs("member1", ns, "conf", "colour", "blue"))
	testwait.UntilNil(t, "no drift in member1", approvableDriftIs(t, conf, correct+"  member2: missing (ID)\n\nexit status 2"))

	// Edits on the hub and in the member wait, and an old ID approves neither.
	mustKubectl(t, "", "patch cm conf -n "+ns+` --type=merge -p={"data":{"colour":"violet"}}`)
	in1, at := conf+" --cluster member1", func(live, wanted string) string {
		return fmt.Sprintf("%s  member1: 1 difference (ID)\n    /data/colour: %q -> %q (%s)\n\nexit status 2", correct, live, wanted, "atoll")
	}
	testwait.UntilNil(t, "an edit on the hub", approvableDriftIs(t, in1, at("blue", "violet")))
	old := reportedDriftID(t, "cm/conf", "member1", ns)
	if old == id {
		t.Errorf("other drift has the same ID %s", id)
	}
	patchInMember(t, "member1", "patch cm conf -n "+ns+` --type=merge --field-manager=by-hand -p={"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "an edit in the member", approvableDriftIs(t, in1, strings.ReplaceAll(at("red", "violet"), "(atoll)", "(by-hand)")))
	if out := runCLI(t, "drift", "correct", "cm/conf", "-n", ns, "--cluster", "member1", "--id", old); !strings.Contains(out, "changed") {
		t.Errorf("an old ID is approved:\n%s", out)
	}
	staysTrue(t, "nothing is written", configMapDataIs("member1", ns, "conf", "colour", "red"))

	expectOutput(t, "all clusters", runCLI(t, "drift", "correct", "cm/conf", "-n", ns, "--all-clusters"), "member1: 1 difference", "member2: missing")
	testwait.UntilNil(t, "corrected in both", allChecks(
		configMapDataIs("member1", ns, "conf", "colour", "violet"), configMapDataIs("member2", ns, "conf", "colour", "violet"), approvableDriftIs(t, conf, "no drift\n"),
	))

	// The same drift again is later drift.
	patchInMember(t, "member1", "patch cm conf -n "+ns+` --type=merge --field-manager=by-hand -p={"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "the same edit again", approvableDriftIs(t, in1, strings.ReplaceAll(at("red", "violet"), "(atoll)", "(by-hand)")))
	staysTrue(t, "the approval is used", configMapDataIs("member1", ns, "conf", "colour", "red"))
}
