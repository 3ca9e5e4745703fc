package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// followers hold a stream each, of a member's API; followersMost is what they may cost the
// hub beyond what it had, in MiB; 90 to 115 are usual, half of it stacks of goroutines, six
// for each follower, and most of the rest what the garbage collector leaves room for.
const (
	followers     = 1000
	followersMost = 150
)

// TestAThousandFollowers: as many connections of their own, each of which follows something
// in a member, as `kubectl logs -f` does, cost the hub little, and leave nothing.
func TestAThousandFollowers(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", world.lab.Kubeconfig("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		grant(t, m, "followers", "--clusterrole view --user atoll-admin")
	}
	hub := componentPID(t, "hub")
	before := resident(t, hub)
	t.Log("at first:", memory(t))
	var open sync.WaitGroup
	var all []*http.Response
	var mu sync.Mutex
	gate := make(chan struct{}, 20)
	for i := range followers {
		open.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			transport, err := rest.TLSConfigFor(config)
			if err != nil {
				t.Error(err)
				return
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: transport, ForceAttemptHTTP2: true}}
			url := config.Host + "/apis/atoll.dev/v1alpha1/clusters/" + members[i%len(members)] + "/proxy/api/v1/namespaces/default/configmaps?watch=true"
			answer, err := client.Get(url)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("follower %d: %v, %v", i, answer, err)
				return
			}
			if _, err := bufio.NewReaderSize(answer.Body, 16).ReadByte(); err != nil {
				t.Errorf("follower %d sees nothing: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, answer)
		})
	}
	open.Wait()
	t.Log("at once:", resident(t, hub), "MiB,", memory(t))
	least := math.MaxInt
	eventually(t, converge, "the hub gives back what coming in has cost", func(context.Context) string {
		if least = min(least, resident(t, hub)-before); least > followersMost {
			return fmt.Sprintf("%d followers cost the hub %d MiB, more than %d", len(all), least, followersMost)
		}
		return ""
	})
	t.Logf("%d followers cost the hub %d MiB, beyond %d: %s", len(all), least, before, memory(t))
	for _, answer := range all {
		answer.Body.Close()
	}
}

// memory of the hub, as its metrics tell.
func memory(t *testing.T) string {
	t.Helper()
	var told []string
	for line := range strings.Lines(at(t, world.lab.Kubeconfig("hub"), "", "get --raw /metrics")) {
		for _, name := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "go_memstats_heap_alloc_bytes ", "go_memstats_stack_inuse_bytes ", "go_memstats_next_gc_bytes "} {
			if strings.HasPrefix(line, name) {
				told = append(told, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(told, ", ")
}

// componentPID of the lab.
func componentPID(t *testing.T, name string) int {
	t.Helper()
	status, err := world.lab.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Components {
		if c.Name == name {
			return c.PID
		}
	}
	t.Fatalf("the lab has no component %s", name)
	return 0
}
