package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// stopRounds is how often TestAHubWithOpenWatchesIsStoppedAndKilled ends the hub.
const stopRounds = 8

// TestAHubWithOpenWatchesIsStoppedAndKilled ends the hub at random moments of writes, by SIGTERM or SIGKILL, while a
// watch is open. The watch ends with the hub, each start succeeds, and every write that the hub acknowledged is there.
// ATOLL_SEED repeats a run.
func TestAHubWithOpenWatchesIsStoppedAndKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("stops and kills hubs")
	}
	seed := intFromEnv(t, seedVariable, int(time.Now().UnixNano()))
	t.Logf("%s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	l := newOwnLab(t, 0)
	acknowledged := map[string]bool{}
	for round := range stopRounds {
		hub := requireConfigMaps(t, l, acknowledged)
		watch, err := hub.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range watch.ResultChan() {
			}
		}()
		writing, stopWriting := context.WithCancel(t.Context())
		enough, written := make(chan struct{}), make(chan struct{})
		moment := 20 + random.IntN(200)
		go func() {
			defer close(written)
			for i := 0; writing.Err() == nil; i++ {
				name := fmt.Sprintf("round-%d-%d", round, i)
				_, err := hub.CoreV1().ConfigMaps("default").Create(writing, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				if err == nil {
					acknowledged[name] = true
				}
				if i == moment {
					close(enough)
				}
			}
		}()
		<-enough
		end := l.StopComponent
		if random.IntN(2) == 0 {
			end = l.KillComponent
		}
		l.mustDo(end, "hub")
		stopWriting()
		<-written
		<-ended
		l.mustDo(l.StartComponent, "hub")
	}
	requireConfigMaps(t, l, acknowledged)
	if strings.Contains(l.readLog("hub"), "did not stop in time") {
		t.Error("a stop waited for an open watch")
	}
	t.Logf("%d writes were acknowledged", len(acknowledged))
}

// requireConfigMaps fails the test unless the hub has all ConfigMaps of these names, and returns a client of the hub.
func requireConfigMaps(t *testing.T, l *ownLab, names map[string]bool) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.hubKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := hub.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range list.Items {
		found[c.Name] = true
	}
	for name := range names {
		if !found[name] {
			t.Errorf("the acknowledged ConfigMap %s is lost", name)
		}
	}
	return hub
}
