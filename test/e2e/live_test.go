package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// printed is all that kubectl has printed so far.
func printed(t *testing.T, b *background) string {
	t.Helper()
	text, err := os.ReadFile(b.out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheFleetIsSeenAsOneCluster: by plain kubectl on the hub, of what is placed and nothing
// else.
func TestTheFleetIsSeenAsOneCluster(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "live")
	apply(t, ns, web+"---"+everywhere)
	hub := world.lab.Kubeconfig("hub")
	eventually(t, converge, "two pods of each member are seen", func(context.Context) string {
		out := sh(t, "", "get pods -n "+ns+" --no-headers -l app=web")
		for _, m := range members {
			if strings.Count(out, "."+m+" ") != 2 || strings.Count(out, "Running") != 2*len(members) {
				return "the output is: " + out
			}
		}
		return ""
	})
	direct := world.lab.Kubeconfig("member1")
	expect(t, "a pod that nobody placed", at(t, direct, "", "run -n "+ns+" stray --image=registry.example/stray:1"), "created")
	afterwards(t, "member1", "delete pod stray --wait=false -n "+ns)
	if out := sh(t, "", "get pods -A --no-headers"); strings.Contains(out, "stray") || !strings.Contains(out, ".member3 ") {
		t.Errorf("get pods -A:\n%s", out)
	}
	expect(t, "get pods -o wide", sh(t, "", "get pods -n "+ns+" -o wide"), "CLUSTER", "NODE")
	if out := sh(t, "", "get pods -n "+ns+" -o name -l atoll.dev/cluster=member2"); strings.Count(out, "pod/") != 2 || strings.Contains(out, "member1") {
		t.Errorf("of one cluster: %s", out)
	}
	expect(t, "get rs", sh(t, "", "get rs -n "+ns), ".member1", ".member2", ".member3")
	// Members write events when they come to it.
	eventually(t, converge, "get events", says(func() string { return sh(t, "", "get events -n "+ns) }, "ScalingReplicaSet", "deployment/web", ".member2", "Scheduled"))
	expect(t, "rollout history", sh(t, "", "rollout history deploy/web -n "+ns), "REVISION", "1")
	expect(t, "describe deploy", sh(t, "", "describe deploy web -n "+ns), "NewReplicaSet:", "ScalingReplicaSet")
	expect(t, "a complete list of what is stored", sh(t, "", "get deploy -o name -l atoll.dev/complete=true -n "+ns), "deployment.apps/web")
	fails(t, "", "get deploy -l atoll.dev/complete=no -n "+ns, "asks for lists in which nothing is missing")
	pod := strings.TrimPrefix(strings.Fields(sh(t, "", "get pods -n "+ns+" -o name -l atoll.dev/cluster=member1"))[0], "pod/")
	expect(t, "describe pod", sh(t, "", "describe pod -n "+ns+" "+pod), "Controlled By:", "Scheduled", pod)
	expect(t, "wait", sh(t, "", "wait --for=condition=Ready pod -l app=web -n "+ns+" --timeout 60s"), pod+" condition met")

	// Members' nodes have no kubelets: how far a request comes is what their API servers say.
	expect(t, "logs", at(t, hub, "", "logs -n "+ns+" deploy/web"), "Found 6 pods", "containerLogs/"+ns+"/web-")
	expect(t, "logs of a pod that nobody placed", at(t, hub, "", "logs -n "+ns+" stray.member1"), `"stray.member1" not found`)
	sh(t, "", "create rolebinding lila -n "+ns+" --clusterrole cluster-admin --user lila")
	as := " --as lila -n " + ns + " " // to whom the hub grants all in the namespace, and the member nothing yet
	eventually(t, converge, "what the member does not grant is refused there", func(context.Context) string {
		if out := at(t, hub, "", "exec"+as+pod+" -- ls"); !strings.Contains(out, `User "lila" cannot create resource "pods/exec"`) {
			return "the output is: " + out
		}
		return ""
	})
	expect(t, "delete", at(t, hub, "", "delete pod"+as+pod), `User "lila" cannot delete resource "pods"`)
	expect(t, "a collection", at(t, hub, "", "delete --raw /api/v1/namespaces/"+ns+"/pods"), "not deleted as a collection")
	expect(t, "scale of what its controller scales", at(t, hub, "", "scale rs -n "+ns+" "+strings.TrimPrefix(strings.Fields(sh(t, "", "get rs -n "+ns+" -o name"))[0], "replicaset.apps/")+" --replicas 3"), "its controller says how many")

	grant(t, "member1", "live-lila", "--clusterrole cluster-admin --user lila")
	eventually(t, converge, "what the member grants is done there", func(context.Context) string {
		if out := at(t, hub, "", "label pod"+as+pod+" touched=yes --overwrite"); !strings.Contains(out, "labeled") {
			return "the output is: " + out
		}
		return ""
	})
	expect(t, "the label in the member", at(t, direct, "", "get pods -n "+ns+" -o name -l touched=yes"), strings.TrimSuffix(pod, ".member1"))
	if out := at(t, hub, "", "debug"+as+pod+" --image=registry.example/tool:1 -c tool"); strings.Contains(out, "exit status") {
		t.Errorf("debug: %s", out)
	}
	expect(t, "the debug container in the member", at(t, direct, "", "get pods -n "+ns+" -l touched=yes -o jsonpath={.items[0].spec.ephemeralContainers[0].name}"), "tool")
	expect(t, "exec", at(t, hub, "", "exec"+as+pod+" -- ls"), "/exec/"+ns+"/")
	events := runKubectl(t, hub, "get pods -n "+ns+" -w --output-watch-events --no-headers")
	events.prints(t, pod)
	expect(t, "delete", at(t, hub, "", "delete pod"+as+pod+" --wait=false"), "deleted")
	eventually(t, converge, "the watch shows what goes and what comes", func(context.Context) string {
		out := printed(t, events)
		if !strings.Contains(out, "DELETED") || strings.Count(out, "ADDED") < 2*len(members)+1 {
			return "the output is: " + out
		}
		return ""
	})
}

// fallsBack: `atoll exec` passes where WebSockets do not, and kubectl does.
func fallsBack(t *testing.T, ns, pod string) {
	t.Helper()
	sh(t, "", "create serviceaccount ci -n "+ns)
	sh(t, "", "create rolebinding ci --clusterrole admin --serviceaccount "+ns+":ci -n "+ns)
	grant(t, "member1", ns+"-ci", "--clusterrole cluster-admin --user atoll:serviceaccount:"+ns+":ci")
	token := strings.TrimSpace(sh(t, "", "create token ci -n "+ns))
	server, err := url.Parse(sh(t, "", "config view -o jsonpath={.clusters[0].cluster.server}"))
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	between := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			refused.Add(1)
			http.Error(w, "no WebSockets here", http.StatusForbidden)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	config := manifest(t, "between.kubeconfig", ns, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: b, context: {cluster: b, user: b}}],
 clusters: [{name: b, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: b, user: {token: %s}}]}`, between.URL, token))
	eventually(t, converge, "atoll exec by SPDY", func(context.Context) string {
		if out := binary(t, "across\n", "atoll", "exec", "--kubeconfig", config, "-i", pod, "-n", ns, "--", "cat"); out != "across\n" {
			return "the output is: " + out
		}
		return ""
	})
	if refused.Load() == 0 {
		t.Error("no WebSocket was tried")
	}
}

// TestJobsOfTheFleet: a template's pods are found by its selector, which is of the hub; and
// what its CronJob makes in members is seen.
func TestJobsOfTheFleet(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "jobs")
	sh(t, "", "annotate ns "+ns+" atoll.dev/clusters=member1,member2")
	sh(t, "", "create job once -n "+ns+" --image registry.example/once:1")
	sh(t, "", "create cronjob often -n "+ns+" --image registry.example/often:1 --schedule=@yearly")
	hub, direct := world.lab.Kubeconfig("hub"), world.lab.Kubeconfig("member1")
	eventually(t, converge, "the pods of a Job are found", func(context.Context) string {
		if out := at(t, hub, "", "logs job/once -n "+ns); !strings.Contains(out, "Found 2 pods") {
			return "the output is: " + out
		}
		return ""
	})
	eventually(t, converge, "the CronJob is in a member", func(context.Context) string {
		if out := at(t, direct, "", "create job now --from cronjob/often -n "+ns); !strings.Contains(out, "created") {
			return "the output is: " + out
		}
		return ""
	})
	eventually(t, converge, "its Job is seen", func(context.Context) string {
		if out := at(t, hub, "", "get jobs --no-headers -n "+ns); strings.Count(out, "once") != 1 || strings.Count(out, "now.member1") != 1 {
			return "the output is: " + out
		}
		return ""
	})
	sh(t, "", "wait job/now.member1 --for=condition=Complete --timeout=60s -n "+ns)
	expect(t, "whose it is", sh(t, "", "describe job now.member1 -n "+ns), "CronJob/often")
	expect(t, "whose its status is", at(t, hub, "", "patch job now.member1 --subresource status --type merge -p {} -n "+ns), "for that cluster to say")
}

// TestAClusterThatIsAwayIsNamedAsMissing: in lists; watches say nothing, and go on with it.
func TestAClusterThatIsAwayIsNamedAsMissing(t *testing.T) {
	ns := namespace(t, "livecut")
	apply(t, ns, web+"---"+everywhere)
	sees := func(what, want string) {
		t.Helper()
		eventually(t, converge, what, func(context.Context) string {
			out := at(t, world.lab.Kubeconfig("hub"), "", "get pods -n "+ns+" --no-headers")
			if !strings.Contains(out, want) || strings.Contains(out, "Pending") {
				return "the output is: " + out
			}
			return ""
		})
	}
	sees("pods of member3 are seen", ".member3 ")
	events := runKubectl(t, world.lab.Kubeconfig("hub"), "get pods -n "+ns+" -w --output-watch-events --no-headers")
	events.prints(t, ".member3")
	if err := world.lab.Cut(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.lab.Heal(context.WithoutCancel(t.Context()), "member3") })
	sees("who is missing is named", "Warning: pods are missing here: cluster member3 cannot be reached: its agent is not connected to the hub")
	direct := world.lab.Kubeconfig("member3")
	expect(t, "delete", at(t, direct, "", "delete pods -n "+ns+" --all --wait=true"), "deleted")
	sh(t, "", "scale deploy web -n "+ns+" --replicas 3")
	eventually(t, converge, "the watch goes on with the others", func(context.Context) string {
		if out := printed(t, events); strings.Count(out, ".member1 ") < 3 {
			return "the output is: " + out
		}
		return ""
	})
	if out := printed(t, events); strings.Contains(out, "DELETED") {
		t.Errorf("a cluster that is away is told as deletions:\n%s", out)
	}
	if err := world.lab.Heal(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	eventually(t, converge, "the watch catches up, or ends for another list", func(context.Context) string {
		out := printed(t, events)
		if strings.Count(out, "DELETED") < 2 && !strings.Contains(out, "list again") {
			return "the output is: " + out
		}
		return ""
	})
	sees("nobody is missing", ".member3 ")
}

// TestContainersOfTheFleet: what people do with containers, on the hub, by the names that they
// have there.
func TestContainersOfTheFleet(t *testing.T) {
	ns, _ := aShell(t)
	hub := world.lab.Kubeconfig("hub")
	expect(t, "logs", at(t, hub, "", "logs deploy/shell -n "+ns), "begun\nline 1\n")
	runKubectl(t, hub, "logs -f --tail 1 deploy/shell -n "+ns).prints(t, "line ")
	expect(t, "exec with input", at(t, hub, "across\n", "exec -i deploy/shell -n "+ns+" -- cat"), "across\n")
	if out := inShell(t, hub, ns, "exit 42"); !strings.Contains(out, "exit status 42") {
		t.Errorf("the exit code of what was run is lost:\n%s", out)
	}
	forwarded(t, hub, ns)
	pod := at(t, hub, "", "get pods -o jsonpath={.items[0].metadata.name} -n "+ns)
	runKubectl(t, hub, "attach "+pod+" -n "+ns).prints(t, "line ")
	debugged(t, hub, ns, pod)
	copied(t, hub, ns, pod, 2<<20)
	bySPDY(t, hub, ns)
	fallsBack(t, ns, pod)
	expect(t, "exec by the name of the pod", at(t, hub, "", "exec "+pod+" -n "+ns+" -- echo here"), "here")
	expect(t, "delete", at(t, hub, "", "delete pod "+pod+" -n "+ns), "deleted")
}
