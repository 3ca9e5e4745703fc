package clusterstatus

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Every field of a Cluster's status comes from the agent's report, or from its stream.
func TestStatusFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, func(c *v1alpha1.Cluster) { c.Generation = 6 })
		w.run(func() {
			inv := healthyInventory()
			inv.KubernetesVersion, inv.AgentVersion, inv.ApisHash = "v1.37.1", "v0.3", "apis"
			inv.NodesTotal, inv.NodesReady = 5, 4
			inv.Requested["memory"] = "3Gi"
			inv.Room = &pb.Room{
				Classes: []string{"3 cpu=3500m memory=8192Mi pods=90"}, ClassGroups: []uint32{1}, SharedLabels: map[string]string{"arch": "amd64"}, UnreportedLabels: []string{"example.com/*"},
				Groups: []*pb.NodeGroup{{Size: "3 cpu=4000m pods=110", Labels: map[string]string{"pool": "cpu"}}, {Size: "2 pods=110 taints=gpu:NoSchedule"}},
			}
			w.StreamUp("u0", "TLS")
			w.RecordInventory("u0", inv)
			synctest.Wait()
			c, _ := w.Get("c0")
			s := c.Status
			if s.KubernetesVersion != "v1.37.1" || s.AgentVersion != "v0.3" || s.APIsHash != "apis" {
				t.Errorf("kubernetesVersion %q, agentVersion %q, apisHash %q", s.KubernetesVersion, s.AgentVersion, s.APIsHash)
			}
			if want := (v1alpha1.NodeSummary{Total: 5, Ready: 4, Summary: "4/5"}); s.Nodes != want {
				t.Errorf("nodes %+v", s.Nodes)
			}
			r := s.Resources
			if r.Allocatable.Cpu().String() != "12" || r.Allocatable.Memory().String() != "24Gi" || r.Requested.Cpu().String() != "1500m" || r.Requested.Memory().String() != "3Gi" {
				t.Errorf("resources %+v", r)
			}
			if free, known := freecapacity.FreeCapacityOf(&r); !known || !slices.Equal(free.EncodeClasses(), []string{"3 cpu=3500m memory=8192Mi pods=90"}) || !slices.Equal(r.Room.Classes, free.EncodeClasses()) {
				t.Errorf("free capacity %+v, room %+v", r.FreeCapacity, r.Room)
			}
			if free := r.FreeCapacity; free.NodeClasses[0].NodeGroup != 1 || len(free.NodeGroups) != 2 || !slices.Equal(free.UnreportedLabels, []string{"example.com/*"}) ||
				!maps.Equal(free.NodeGroups[0].Labels, map[string]string{"arch": "amd64", "pool": "cpu"}) || free.NodeGroups[0].Nodes != 3 || free.NodeGroups[0].Largest.Cpu().String() != "4" ||
				!maps.Equal(free.NodeGroups[1].Labels, map[string]string{"arch": "amd64"}) || free.NodeGroups[1].Taints[0].Key != "gpu" {
				t.Errorf("groups %+v", free)
			}
			for _, is := range atoll.ConditionTypes["Cluster"] {
				c := meta.FindStatusCondition(s.Conditions, is.Type)
				if is.Temporary && c == nil {
					continue
				}
				if is.Temporary || c == nil || c.Reason == "" || c.ObservedGeneration != 6 || c.LastTransitionTime.IsZero() || c.Status != is.Normal {
					t.Errorf("condition %s of a new cluster: %+v", is.Type, c)
				}
			}
			for _, kind := range []string{v1alpha1.ClusterAccepted, v1alpha1.ClusterJoined, v1alpha1.ClusterReady} {
				cond := meta.FindStatusCondition(s.Conditions, kind)
				if cond == nil || cond.Status != metav1.ConditionTrue || cond.Reason == "" || cond.LastTransitionTime.IsZero() || cond.ObservedGeneration != 6 {
					t.Errorf("condition %s: %+v", kind, cond)
				}
			}
			ready := *meta.FindStatusCondition(s.Conditions, v1alpha1.ClusterReady)
			broken := healthyInventory()
			broken.MemberReady, broken.MemberMessage = false, "connection refused "+strings.Repeat("é", 50_000)
			broken.Room = &pb.Room{Classes: []string{"many nodes"}}
			advanceClock(settle)
			w.RecordInventory("u0", broken)
			synctest.Wait()
			c, _ = w.Get("c0")
			if c.Status.Resources.FreeCapacity != nil {
				t.Errorf("a report that cannot be read: %+v", c.Status.Resources.FreeCapacity)
			}
			partial := healthyInventory()
			partial.Room = &pb.Room{Classes: []string{"3 cpu=3500m pods=90"}, ClassGroups: []uint32{1}, Groups: []*pb.NodeGroup{{Size: "many"}}}
			withBadGroup, _ := reportedCapacity(partial.Room)
			if withBadGroup == nil || len(withBadGroup.NodeClasses) != 1 || withBadGroup.NodeGroups != nil {
				t.Errorf("a group that cannot be read: %+v", withBadGroup)
			}
			partial.Room.Groups[0].Size, partial.Room.UnreportedLabels = "3 pods=110", []string{"a b"}
			if withBadEntry, _ := reportedCapacity(partial.Room); withBadEntry == nil || withBadEntry.NodeGroups != nil {
				t.Errorf("an entry that cannot be read: %+v", withBadEntry)
			}
			now := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
			if now.Status != metav1.ConditionFalse || now.Reason != "MemberNotReady" || !strings.Contains(now.Message, "connection refused") || len(now.Message) > troubleMost+len("…") || !utf8.ValidString(now.Message) || !now.LastTransitionTime.After(ready.LastTransitionTime.Time) {
				t.Errorf("Ready turned from %+v to %+v", ready, now)
			}
		})
	})
}
