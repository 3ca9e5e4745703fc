package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/testwait"
)

// followerCount is the number of `logs -f`, and followersMost bounds their cost for the
// hub, in bytes of live heap and stacks: 82 MB were measured. The garbage collector's
// headroom is a fifth more in a quiet hub, and depends on the garbage.
const (
	followerCount = 1000
	followersMost = 100_000_000
)

// shoutingDeployment is a workload of one pod on the first node of each member.
const shoutingDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shouts, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2,member3"}}
spec:
  replicas: 1
  selector: {matchLabels: {app: shouts}}
  template:
    metadata: {labels: {app: shouts}}
    spec: {nodeName: node-1, containers: [{name: shouts, image: "registry.example/shouts:1"}]}
`

// TestAThousandFollowers bounds the hub's cost of a thousand `kubectl logs -f`, each with a
// connection of its own, in three members. Half of them follow by the hub's own pods, half
// by the members' APIs through the hub.
func TestAThousandFollowers(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	ns := createNamespace(t, "followed")
	apply(t, ns, shoutingDeployment)
	kubelet := followedKubelet(t)
	pods := map[string]string{}
	for _, m := range memberNames {
		grantRole(t, m, "followers", "--clusterrole view --user atoll-admin")
		port := kubelet.Listener.Addr().String()[strings.LastIndexByte(kubelet.Listener.Addr().String(), ':')+1:]
		expectOutput(t, "a kubelet's port", kubectlAt(t, sharedWorld.lab.KubeconfigPath(m), "", `patch node node-1 --subresource=status --type=merge -p {"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":`+port+`}}}}`), "patched")
		testwait.UntilNil(t, "the pod is there", func(context.Context) error {
			pods[m] = strings.TrimSpace(strings.TrimPrefix(kubectlAt(t, sharedWorld.lab.KubeconfigPath(m), "", "get pods -o name -l app=shouts -n "+ns), "pod/"))
			if !strings.HasPrefix(pods[m], "shouts-") || strings.Contains(pods[m], " ") {
				return errors.New("the output is: " + pods[m])
			}
			return nil
		})
	}
	path := func(i int) string {
		m := memberNames[i%len(memberNames)]
		if i%2 == 0 {
			return "/api/v1/namespaces/" + ns + "/pods/" + pods[m] + "." + m + "/log?follow=true"
		}
		return "/apis/atoll.dev/v1alpha1/clusters/" + m + "/proxy/api/v1/namespaces/" + ns + "/pods/" + pods[m] + "/log?follow=true"
	}
	followManyLogs(t, config, 50, path)() // what is made once, is made
	before := quietMemory(t)
	end := followManyLogs(t, config, followerCount, path)
	defer end()
	after := quietMemory(t)
	t.Logf("%d followers cost the hub %.0f bytes in heap and %.0f in stacks, by %.0f goroutines; it is %.0f bytes larger, in all", followerCount,
		after["heap"]-before["heap"], after["stacks"]-before["stacks"], after["goroutines"]-before["goroutines"], after["resident"]-before["resident"])
	if cost := after["heap"] + after["stacks"] - before["heap"] - before["stacks"]; cost > followersMost {
		t.Errorf("%d followers cost the hub %.0f bytes, more than %d", followerCount, cost, followersMost)
	}
}

// followManyLogs follows logs, each by a connection of its own, until the caller ends it.
func followManyLogs(t *testing.T, config *rest.Config, n int, path func(int) string) (end func()) {
	t.Helper()
	var open sync.WaitGroup
	var mu sync.Mutex
	var all []func()
	gate := make(chan struct{}, 20)
	for i := range n {
		open.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			transport, err := rest.TLSConfigFor(config)
			if err != nil {
				t.Error(err)
				return
			}
			by := &http.Transport{TLSClientConfig: transport, ForceAttemptHTTP2: true}
			answer, err := (&http.Client{Transport: by}).Get(config.Host + path(i))
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("follower %d: %v, %v", i, answer, err)
				return
			}
			if line, err := bufio.NewReaderSize(answer.Body, 16).ReadString('\n'); line != "begun\n" {
				t.Errorf("follower %d sees %q, %v", i, line, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, func() { answer.Body.Close(); by.CloseIdleConnections() })
		})
	}
	open.Wait()
	return func() {
		for _, end := range all {
			end()
		}
	}
}

// followedKubelet serves logs, as the kubelets do that the lab's nodes do not have: a line,
// and then nothing.
func followedKubelet(t *testing.T) *httptest.Server {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		kubelet.CloseClientConnections()
		kubelet.Close()
	})
	return kubelet
}

// lookApart is how far apart the hub is looked at: being looked at is work, and it is quiet
// after 20 s in which there was none.
const lookApart = 24 * time.Second

// quietMemory waits until the hub has nothing to do, and has collected what it had done, and gives
// what it has in memory then, in bytes.
func quietMemory(t *testing.T) map[string]float64 {
	t.Helper()
	for until := time.Now().Add(2 * testwait.HangLimit); ; <-time.After(lookApart) {
		found := hubMemory(t)
		if found["garbage"] <= 20 { // as internal/hub/memory has it of a quiet hub
			return found
		}
		if time.Now().After(until) {
			t.Fatalf("the hub is not quiet: %v", found)
		}
	}
}

// hubMemory returns the memory of the hub, by its metrics.
func hubMemory(t *testing.T) map[string]float64 {
	t.Helper()
	names := map[string]string{
		"go_gc_heap_live_bytes": "heap", "go_memory_classes_heap_stacks_bytes": "stacks", "go_goroutines": "goroutines", "process_resident_memory_bytes": "resident",
		"go_gc_gogc_percent": "garbage",
	}
	found := map[string]float64{}
	for line := range strings.Lines(kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "get --raw /metrics")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || names[name] == "" {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		found[names[name]] = number
	}
	if len(found) != len(names) {
		t.Fatalf("the hub's metrics tell %v of %v", found, names)
	}
	return found
}
