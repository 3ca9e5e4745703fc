package e2e

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const comparedObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: $NS}
data: {a: "ours", b: "same"}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: $NS}
stringData: {a: "ours-of-the-hub"}
`

// An object that Atoll does not correct, here because another writer made it, differs from what the
// cluster gets. The rights are those of the user in the cluster.
func TestDiffOfAnObject(t *testing.T) {
	t.Parallel()
	ns := "compared"
	member := sharedWorld.lab.KubeconfigPath("member2")
	theirs := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: " + ns + "}\ndata: {a: theirs, b: same, c: more}\n---\n" +
		"apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: " + ns + "}\nstringData: {a: theirs-of-the-member}\n"
	if out := kubectlAt(t, member, theirs, "apply -f - --field-manager=another-tool"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	kubectlAtEnd(t, "member2", "delete namespace "+ns+" --wait=false")
	apply(t, ns, comparedObjects)
	testwait.UntilNil(t, "applied in member1", allChecks(inCluster("member1", "v1", "ConfigMap", ns, "conf", true), inCluster("member1", "v1", "Secret", ns, "key", true)))

	expectOutput(t, "without rights in member2", runCLI(t, "diff", "cm/conf", "-n", ns, "--cluster", "member2"), "member2: could not be compared: read the object", "forbidden", "exit status 1")
	for _, m := range []string{"member1", "member2"} {
		grantRole(t, m, "compared", "--clusterrole cluster-admin --group atoll:masters")
	}
	out := runCLI(t, "diff", "cm/conf", "-n", ns)
	expectOutput(t, "diff", out, "member2: 1 difference\n  /data/a: \"theirs\" -> \"ours\" (another-tool)\n", "no difference: member1\n", "exit status 2")
	out = runCLI(t, "diff", "secret/key", "-n", ns)
	expectOutput(t, "diff of a Secret", out, "  /data/a: (not shown)", "exit status 2")
	if strings.Contains(out, "dGhla") || strings.Contains(out, "b3Vyc") || strings.Contains(out, "of-the") {
		t.Errorf("a value of a Secret is shown:\n%s", out)
	}
	if out := runCLI(t, "diff", "cm/conf", "-n", ns, "--cluster", "member1"); !strings.Contains(out, "no difference: member1") || strings.Contains(out, "exit status") {
		t.Errorf("member1 differs:\n%s", out)
	}
	expectOutput(t, "another cluster", runCLI(t, "diff", "cm/conf", "-n", ns, "--cluster", "member3"), `not in cluster "member3"`, "exit status 1")
	if err := fieldShows([]string{"member2"}, objectName{"v1", "ConfigMap", ns, "conf"}, "data.a", "theirs")(t.Context()); err != nil {
		t.Errorf("a comparison wrote: %v", err)
	}
}
