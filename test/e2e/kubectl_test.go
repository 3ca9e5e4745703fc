package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/lab"
)

// placed gives a policy for every object of the kinds in the namespace, everywhere.
func placed(kinds ...string) string {
	var selectors []string
	for _, k := range kinds {
		apiVersion, kind, _ := strings.Cut(k, " ")
		selectors = append(selectors, fmt.Sprintf("{apiVersion: %s, kind: %s}", apiVersion, kind))
	}
	return `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: $NS}
spec:
  resourceSelectors: [` + strings.Join(selectors, ", ") + `]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
`
}

// sh runs kubectl against the hub and gives what it printed; it has to succeed. The
// arguments are separated by blanks; $NS is not replaced.
func sh(t *testing.T, stdin, args string) string {
	t.Helper()
	out := kubectl(t, stdin, strings.Fields(args)...)
	if strings.Contains(out, "\nexit status ") {
		t.Fatalf("kubectl %s:\n%s", args, out)
	}
	return out
}

// fails runs kubectl, which has to fail and to print all of says.
func fails(t *testing.T, stdin, args string, says ...string) {
	t.Helper()
	out := kubectl(t, stdin, strings.Fields(args)...)
	if !strings.Contains(out, "\nexit status ") {
		t.Errorf("kubectl %s succeeded:\n%s", args, out)
	}
	for _, s := range says {
		if !strings.Contains(out, s) {
			t.Errorf("kubectl %s does not say %q:\n%s", args, s, out)
		}
	}
}

// afterwards runs kubectl against a cluster when the test has ended, however it ends.
func afterwards(t *testing.T, cluster, args string) {
	t.Helper()
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", world.lab.Kubeconfig(cluster)}, strings.Fields(args)...)...)
	})
}

// manifest writes a file of the test's own and gives its path.
func manifest(t *testing.T, name, ns, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "$NS", ns)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// object names one object of any cluster.
type object struct{ apiVersion, kind, namespace, name string }

// shows gives a check that a field of an object, by its dotted path, prints as want
// in each of the clusters.
func shows(clusters []string, o object, path, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		for _, c := range clusters {
			live, err := get(ctx, c, o.apiVersion, o.kind, o.namespace, o.name)
			if err != nil || live == nil {
				return fmt.Sprintf("%s: no %s %s/%s (%v)", c, o.kind, o.namespace, o.name, err)
			}
			got, _, _ := unstructured.NestedFieldNoCopy(live.Object, strings.Split(path, ".")...)
			if fmt.Sprint(got) != want {
				return fmt.Sprintf("%s: %s %s/%s has %s=%v, want %s", c, o.kind, o.namespace, o.name, path, got, want)
			}
		}
		return ""
	}
}

func TestDiscoveryIsThatOfAnyCluster(t *testing.T) {
	t.Parallel()
	if out := sh(t, "", "version"); !strings.Contains(out, "Server Version: v1.") || strings.Contains(out, "WARNING") {
		t.Errorf("kubectl version:\n%s", out)
	}
	resources := sh(t, "", "api-resources -o name")
	for _, r := range []string{"deployments.apps", "jobs.batch", "customresourcedefinitions.apiextensions.k8s.io", "propagationpolicies.atoll.dev", "targetslices.engine.atoll.dev"} {
		if !slices.Contains(strings.Fields(resources), r) {
			t.Errorf("api-resources lack %s", r)
		}
	}
	for path, says := range map[string]string{
		"deployment.spec.strategy.rollingUpdate":             "maxSurge",
		"pod.spec.containers.livenessProbe":                  "periodSeconds",
		"propagationpolicy.spec.placement.clusterAffinity":   "clusterNames",
		"overridepolicy.spec.overrideRules.overriders":       "imageOverrider",
		"ingress --api-version=networking.k8s.io/v1":         "KIND:       Ingress",
		"clusterpropagationpolicy --recursive":               "resourceSelectors",
		"bundle.status":                                      "conditions",
		"cluster.spec.taints":                                "effect",
		"customresourcedefinition.spec.versions":             "additionalPrinterColumns",
		"horizontalpodautoscaler.spec --output=plaintext":    "scaleTargetRef",
		"mutatingwebhookconfiguration.webhooks.clientConfig": "caBundle",
	} {
		if out := sh(t, "", "explain "+path); !strings.Contains(out, says) {
			t.Errorf("explain %s does not speak of %s:\n%s", path, says, out)
		}
	}
	if out := sh(t, "", "get --raw /openapi/v3"); !strings.Contains(out, "apis/atoll.dev/v1alpha1") {
		t.Error("OpenAPI lacks Atoll's group")
	}
	fails(t, "", "explain deployment.spec.nothing", `field "nothing" does not exist`)
}

func TestKubectlWritesInEveryWay(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "ways")
	apply(t, ns, placed("apps/v1 Deployment", "v1 ConfigMap"))
	file := manifest(t, "web.yaml", ns, web)
	sh(t, "", "apply -f "+file)
	in := func(path, want string) {
		t.Helper()
		eventually(t, converge, path, shows(members, object{"apps/v1", "Deployment", ns, "web"}, path, want))
	}
	in("spec.replicas", "2")
	if out := sh(t, "", "apply -f "+file); !strings.Contains(out, "deployment.apps/web unchanged") {
		t.Errorf("the same again changes something:\n%s", out)
	}
	if out := sh(t, "", "diff -f "+file); out != "" {
		t.Errorf("there is a difference:\n%s", out)
	}
	three := manifest(t, "three.yaml", ns, strings.Replace(web, "replicas: 2", "replicas: 3", 1))
	fails(t, "", "diff -f "+three, "-  replicas: 2", "+  replicas: 3")
	sh(t, "", "apply --dry-run=server -f "+three)
	sh(t, "", "delete --dry-run=server -f "+three)
	if why := shows([]string{"hub"}, object{"apps/v1", "Deployment", ns, "web"}, "spec.replicas", "2")(t.Context()); why != "" {
		t.Errorf("a dry run was stored: %s", why)
	}
	sh(t, "", "apply -f "+three)
	in("spec.replicas", "3")

	sh(t, "", "scale -n "+ns+" deploy/web --replicas=4")
	in("spec.replicas", "4")
	fails(t, "", "apply --server-side -f "+file, "conflict", ".spec.replicas")
	sh(t, "", "apply --server-side --force-conflicts -f "+file)
	in("spec.replicas", "2")
	sh(t, "", "patch -n "+ns+` deploy web --type=json -p [{"op":"replace","path":"/spec/replicas","value":1}]`)
	in("spec.replicas", "1")
	sh(t, "", "patch -n "+ns+` deploy web -p {"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"b"}]}]}}}}`)
	eventually(t, converge, "a strategic merge", containerField(ns, "env", "[map[name:A value:b]]"))
	sh(t, "", "set env -n "+ns+" deploy/web A-")
	eventually(t, converge, "a field that is stated no more", containerField(ns, "env", "<nil>"))
	sh(t, "", "label -n "+ns+" deploy web tier=front")
	in("metadata.labels.tier", "front")
	sh(t, "", "label -n "+ns+" deploy web tier-")
	in("metadata.labels.tier", "<nil>")
	sh(t, "", "replace -f "+three)
	in("spec.replicas", "3")
	// The API server notes nobody as the owner of none.
	sh(t, "", "scale -n "+ns+" deploy/web --replicas=0")
	in("spec.replicas", "0")
	edit := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab"), "kubectl", "--kubeconfig", world.lab.Kubeconfig("hub"), "edit", "-n", ns, "deploy", "web")
	edit.Env = append(os.Environ(), "KUBE_EDITOR=sed -i s#registry.example/web:1#registry.example/web:7#")
	if out, err := edit.CombinedOutput(); err != nil {
		t.Fatalf("kubectl edit: %v\n%s", err, out)
	}
	eventually(t, converge, "edit", containerField(ns, "image", "registry.example/web:7"))
	was, err := get(t.Context(), "member1", "apps/v1", "Deployment", ns, "web")
	if err != nil || was == nil {
		t.Fatal(was, err)
	}
	sh(t, "", "replace --force -f "+file)
	in("spec.replicas", "2")
	eventually(t, converge, "the object is a new one everywhere", func(ctx context.Context) string {
		o, err := get(ctx, "member1", "apps/v1", "Deployment", ns, "web")
		if err != nil || o == nil || o.GetUID() == was.GetUID() {
			return fmt.Sprintf("member1 has %v (%v)", o != nil, err)
		}
		return ""
	})
}

// containerField gives a check of a field of the first container of Deployment web in
// every member.
func containerField(ns, field, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		for _, m := range members {
			o, err := get(ctx, m, "apps/v1", "Deployment", ns, "web")
			if err != nil || o == nil {
				return fmt.Sprintf("%s: no Deployment (%v)", m, err)
			}
			cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if got := fmt.Sprint(cs[0].(map[string]any)[field]); got != want {
				return fmt.Sprintf("%s: %s is %s, want %s", m, field, got, want)
			}
		}
		return ""
	}
}

func TestPruneTakesWhatTheDirectoryNoLongerHolds(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "prune")
	apply(t, ns, placed("v1 ConfigMap", "v1 Secret"))
	const one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: $NS, labels: {set: prune}}\ndata: {a: b}\n"
	const two = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: two, namespace: $NS, labels: {set: prune}}\nstringData: {a: b}\n"
	sh(t, "", "apply --prune -n "+ns+" -l set=prune -f "+manifest(t, "both.yaml", ns, one+two))
	eventually(t, converge, "delivery", all(there("v1", "ConfigMap", ns, "one", members...), there("v1", "Secret", ns, "two", members...)))
	if out := sh(t, "", "apply --prune -n "+ns+" -l set=prune -f "+manifest(t, "one.yaml", ns, one)); !strings.Contains(out, "secret/two pruned") {
		t.Errorf("nothing was pruned:\n%s", out)
	}
	eventually(t, converge, "pruning", all(there("v1", "ConfigMap", ns, "one", members...), there("v1", "Secret", ns, "two")))
}

// An owner on the hub takes what it owns along, there and in the members; orphaned,
// it stays in both.
func TestOwnersTakeTheirOwnAlong(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "owners")
	apply(t, ns, placed("v1 ConfigMap"))
	for _, mode := range []string{"background", "foreground", "orphan"} {
		apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owner-"+mode+", namespace: $NS}")
		owner, err := get(t.Context(), "hub", "v1", "ConfigMap", ns, "owner-"+mode)
		if err != nil || owner == nil {
			t.Fatal(owner, err)
		}
		apply(t, ns, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned-%s, namespace: $NS, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner-%s, uid: %s, blockOwnerDeletion: true}]}", mode, mode, owner.GetUID()))
		eventually(t, converge, "delivery", all(there("v1", "ConfigMap", ns, "owned-"+mode, members...), there("v1", "ConfigMap", ns, "owner-"+mode, members...)))
		sh(t, "", fmt.Sprintf("delete -n %s cm owner-%s --cascade=%s --timeout=60s", ns, mode, mode))
		if why := inCluster("hub", "v1", "ConfigMap", ns, "owner-"+mode, false)(t.Context()); why != "" {
			t.Errorf("kubectl delete returned early: %s", why)
		}
		left := members
		if mode != "orphan" {
			left = nil
		}
		eventually(t, converge, mode, all(
			there("v1", "ConfigMap", ns, "owner-"+mode),
			there("v1", "ConfigMap", ns, "owned-"+mode, left...),
			inCluster("hub", "v1", "ConfigMap", ns, "owned-"+mode, mode == "orphan"),
		))
	}
}

func TestRolesActOnTheHub(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "roles")
	sh(t, "", "create -n "+ns+" role editor --verb=get,list,create,patch,update --resource=deployments.apps,configmaps")
	sh(t, "", "create -n "+ns+" rolebinding editor --role=editor --user=ann")
	sh(t, "", "create -n "+ns+" sa robot")
	sh(t, "", "create -n "+ns+" rolebinding robot --role=editor --serviceaccount="+ns+":robot")
	eventually(t, converge, "the binding acts", func(context.Context) string {
		return strings.TrimPrefix(strings.TrimSpace(kubectl(t, "", "auth", "can-i", "create", "deploy", "-n", ns, "--as=ann")), "yes")
	})
	file := manifest(t, "web.yaml", ns, web)
	sh(t, "", "apply --as=ann -f "+file)
	sh(t, "", "apply --as=ann --server-side --force-conflicts -f "+file)
	fails(t, "", "delete --as=ann -f "+file, "Forbidden", `User "ann" cannot delete`)
	fails(t, "", "get --as=ann secrets -n "+ns, "Forbidden")
	fails(t, "", "apply --as=ann -f "+manifest(t, "other.yaml", "default", web), "Forbidden")
	token := strings.TrimSpace(sh(t, "", "create token -n "+ns+" robot"))
	// The administrator's certificate would speak louder than the token.
	bare := strings.TrimSpace(sh(t, "", "config view --raw -o jsonpath={.clusters[0].cluster.certificate-authority-data}"))
	config := manifest(t, "robot.kubeconfig", ns, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: r, contexts: [{name: r, context: {cluster: r, user: r}}],
 clusters: [{name: r, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: r, user: {token: %s}}]}`,
		sh(t, "", "config view -o jsonpath={.clusters[0].cluster.server}"), bare, token))
	robot := func(args ...string) string {
		return binary(t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", config}, args...)...)
	}
	if out := robot("get", "deploy", "-n", ns, "-o", "name"); strings.TrimSpace(out) != "deployment.apps/web" {
		t.Errorf("a ServiceAccount's token is not taken:\n%s", out)
	}
	if out := robot("get", "secrets", "-n", ns); !strings.Contains(out, "Forbidden") {
		t.Errorf("a ServiceAccount may read what no role allows:\n%s", out)
	}
}

func TestWatchAndWaitAndDescribe(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "watch")
	apply(t, ns, placed("apps/v1 Deployment")+"---\n"+web)
	sh(t, "", "wait -n "+ns+" --for=condition=Available deploy/web --timeout=60s")
	for _, m := range members {
		if why := field(m, ns, "web", "status.availableReplicas", 2)(t.Context()); why != "" {
			t.Errorf("the hub said Available too early: %s", why)
		}
	}
	lines := watched(t, "get", "-n", ns, "deploy", "web", "-w", "--no-headers")
	seen := []string{columns(<-lines)}
	sh(t, "", "scale -n "+ns+" deploy/web --replicas=3")
	sh(t, "", "wait -n "+ns+" --for=jsonpath={.status.availableReplicas}=3 deploy/web --timeout=60s")
	for line := range lines {
		seen = append(seen, columns(line))
		if seen[len(seen)-1] == "web 3/3 3 3" {
			break
		}
	}
	if len(seen) < 2 || seen[0] != "web 2/2 2 2" || seen[len(seen)-1] != "web 3/3 3 3" {
		t.Errorf("get -w showed %q", seen)
	}
	if out := sh(t, "", "describe -n "+ns+" deploy web"); !strings.Contains(out, "3 desired | 3 updated | 3 total | 3 available | 0 unavailable") || !strings.Contains(out, "NewReplicaSetAvailable") {
		t.Errorf("describe:\n%s", out)
	}
	gone := make(chan string, 1)
	go func() {
		gone <- kubectl(t, "", "wait", "-n", ns, "--for=delete", "deploy/web", "--timeout=60s")
	}()
	sh(t, "", "delete -n "+ns+" deploy web --wait=false")
	if out := <-gone; strings.Contains(out, "exit status") {
		t.Errorf("wait --for=delete:\n%s", out)
	}
	if why := there("apps/v1", "Deployment", ns, "web")(t.Context()); why != "" {
		t.Errorf("the template went before what it placed: %s", why)
	}
}

// columns are the first ones of a line of kubectl's tables.
func columns(line string) string {
	fields := strings.Fields(line)
	return strings.Join(fields[:min(4, len(fields))], " ")
}

// watched starts kubectl against the hub and gives its lines until the test ends.
func watched(t *testing.T, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab"), append([]string{"kubectl", "--kubeconfig", world.lab.Kubeconfig("hub")}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = cmd.Wait() // it was killed
	})
	return lines
}

// Nothing runs on the hub; who asks what runs is told so.
func TestWhatDoesNotRunSaysSo(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "norun")
	sh(t, "", "run -n "+ns+" once --image=registry.example/once:1")
	apply(t, ns, web)
	const told = "the hub keeps templates, and runs nothing"
	fails(t, "", "logs -n "+ns+" once", "pod "+ns+"/once has no logs here", told)
	fails(t, "", "exec -n "+ns+" once -- ls", told)
	fails(t, "", "attach -n "+ns+" once", told)
	fails(t, "", "debug -n "+ns+" once --image=registry.example/tool:1", told)
	fails(t, "", "get --raw /api/v1/namespaces/"+ns+"/services/web/proxy", told)
	fails(t, "", "rollout undo -n "+ns+" deploy/web", "no rollout history found")
	fails(t, "", "top pod -n "+ns, "metrics not available yet")
	if out := sh(t, "", "get pods -n "+ns+" --no-headers"); !strings.HasPrefix(out, "once ") || strings.Contains(out, "Warning") {
		t.Errorf("get pods:\n%s", out)
	}
}
