package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// ConditionUnclaimed of a Cluster is there, and true, while its member holds bundles
// that no row asks for.
const ConditionUnclaimed = "Unclaimed"

// troubleMost is how many bytes of an agent's own words the condition Ready repeats: what
// the schema allows holds although nothing checks it when the hub writes.
const troubleMost = 2000

// unclaimedShown is how many bundles the condition names.
const unclaimedShown = 20

// facts about a member.
type facts struct {
	up bool
	// silent: the stream or the check-ins have been away for long enough to say so.
	silent bool
	// fresh: inventory was sent on the stream that is up, or was when it was lost.
	fresh bool
	// inventory that is not in the store yet; nil: the Cluster's status says it.
	inventory *pb.Inventory
	// answers: the member's API does, by the last inventory; trouble says why not, or what of
	// the member could not be read though it does.
	answers bool
	trouble string
	// compared: what the member holds was compared with its rows, so that unclaimed
	// means something.
	compared  bool
	unclaimed []string
	// pushed is how the hub's own agent of the member fares; nil: this hub has no say.
	pushed *Pushed
	// certificate that the agent has come by, or was given, here: when it ends, in Unix
	// seconds, 0 where that is not known, so that the last word stays; and whether it should
	// have been renewed long since.
	certificate int64
	overdue     bool
}

// derive the status that the facts make of the Cluster's present one.
func derive(c *v1alpha1.Cluster, f facts, now metav1.Time) v1alpha1.ClusterStatus {
	s := *c.Status.DeepCopy()
	if i := f.inventory; i != nil {
		s.AgentVersion = i.GetAgentVersion()
	}
	// Without a version the agent could not read its member yet: what is known of it stays.
	if i := f.inventory; i.GetKubernetesVersion() != "" {
		s.KubernetesVersion, s.APIsHash = i.GetKubernetesVersion(), i.GetApisHash()
		s.Nodes = v1alpha1.NodeSummary{
			Total: i.GetNodesTotal(), Ready: i.GetNodesReady(),
			Summary: fmt.Sprintf("%d/%d", i.GetNodesReady(), i.GetNodesTotal()),
		}
		s.Resources = v1alpha1.ResourceSummary{Allocatable: quantities(i.GetAllocatable()), Requested: quantities(i.GetRequested()), Room: roomOf(i.GetRoom())}
		s.Properties = properties(i.GetProperties())
	}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastTransitionTime: now, ObservedGeneration: c.Generation,
		})
	}
	if c.Spec.Accepted {
		set(v1alpha1.ClusterAccepted, metav1.ConditionTrue, "Accepted", "")
	} else {
		set(v1alpha1.ClusterAccepted, metav1.ConditionFalse, "WaitsForAdministrator", "on the hub run: atoll accept "+c.Name)
	}
	switch {
	case f.up || f.fresh || joined(c): // who checks in may be gone again
		set(v1alpha1.ClusterJoined, metav1.ConditionTrue, "AgentConnected", "")
	case c.Spec.Pushed():
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, "WaitsForAgent", "the agent that the hub runs has not connected yet; the condition Pushed says what keeps it")
	case c.Spec.Accepted:
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, "WaitsForAgent", "the agent has not connected yet; see its log in the member")
	default:
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, "WaitsForAcceptance", "")
	}
	if cond := pushed(c, f); cond != nil {
		set(v1alpha1.ClusterPushed, cond.Status, cond.Reason, brief(cond.Message))
	} else {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ClusterPushed)
	}
	status, reason, message := ready(c, f)
	set(v1alpha1.ClusterReady, status, reason, message)
	if f.compared {
		meta.RemoveStatusCondition(&s.Conditions, ConditionUnclaimed)
		if len(f.unclaimed) > 0 {
			old := meta.FindStatusCondition(c.Status.Conditions, ConditionUnclaimed)
			if old != nil {
				s.Conditions = append(s.Conditions, *old.DeepCopy())
			}
			set(ConditionUnclaimed, metav1.ConditionTrue, "HeldByMember", unclaimedMessage(f.unclaimed))
		}
	}
	if f.certificate != 0 {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ClusterCertificateExpiring)
		if f.overdue {
			if old := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring); old != nil {
				s.Conditions = append(s.Conditions, *old.DeepCopy())
			}
			set(v1alpha1.ClusterCertificateExpiring, metav1.ConditionTrue, "NotRenewed", "the agent's certificate ends at "+
				time.Unix(f.certificate, 0).UTC().Format(time.RFC3339)+" and the agent has not renewed it at half of its life: see the agent's log in the member. When it has ended, the agent asks for another by its key")
		}
	}
	return s
}

// properties that an agent reports, by name: as many as the API admits, and of none more
// than that.
func properties(reported map[string]string) []v1alpha1.ClusterProperty {
	var out []v1alpha1.ClusterProperty
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		value := reported[name]
		if name == "" || len(name) > v1alpha1.MaxPropertyName || len(value) > v1alpha1.MaxPropertyValue ||
			!utf8.ValidString(name) || !utf8.ValidString(value) {
			continue
		}
		if out = append(out, v1alpha1.ClusterProperty{Name: name, Value: value}); len(out) == v1alpha1.MaxProperties {
			break
		}
	}
	return out
}

// ready is the condition Ready. What is not known yet keeps the last word.
func ready(c *v1alpha1.Cluster, f facts) (status metav1.ConditionStatus, reason, message string) {
	old := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	every := c.Spec.CheckIn()
	// What was told at a check-in holds until the next.
	heard := f.fresh && (f.up || every > 0 && !f.silent)
	switch {
	case !c.Spec.Accepted:
		return metav1.ConditionUnknown, "NotAccepted", ""
	case heard && !f.answers && keptFromPushing(c, f):
		cond := pushed(c, f)
		return metav1.ConditionFalse, cond.Reason, brief(cond.Message)
	case heard && !f.answers:
		return metav1.ConditionFalse, "MemberNotReady", f.trouble
	case heard && every > 0:
		return metav1.ConditionTrue, "AgentChecksIn", strings.TrimSuffix("the agent checks in every "+atoll.Span(every)+"; "+f.trouble, "; ")
	case heard:
		return metav1.ConditionTrue, "AgentConnected", f.trouble
	case keptFromPushing(c, f) && (f.silent || !joined(c)):
		cond := pushed(c, f)
		return metav1.ConditionUnknown, cond.Reason, brief(cond.Message)
	case f.silent && every > 0:
		return metav1.ConditionUnknown, "CheckInsMissed", "the agent has missed two check-ins, which come every " + atoll.Span(every) + "; what runs in the member goes on running"
	case f.silent:
		return metav1.ConditionUnknown, "StreamLost", "the agent has no stream to the hub; what runs in the member goes on running"
	case !f.up && !joined(c): // whatever kept the hub's own agent before is not what does now
		return metav1.ConditionUnknown, "NeverConnected", ""
	case old != nil && old.Reason != "NotAccepted":
		return old.Status, old.Reason, old.Message
	case f.up:
		return metav1.ConditionUnknown, "WaitsForInventory", "the agent is connected and has not read yet what its member is; where that lasts, its log in the member says why"
	}
	return metav1.ConditionUnknown, "NeverConnected", ""
}

// brief gives the beginning of a text that an agent wrote.
func brief(text string) string {
	if len(text) <= troubleMost {
		return text
	}
	return strings.ToValidUTF8(text[:troubleMost], "") + "…"
}

func unclaimedMessage(bundles []string) string {
	shown := bundles[:min(len(bundles), unclaimedShown)]
	m := fmt.Sprintf("the member holds %s that no row asks for, and keeps what it holds: %s", atoll.Count(len(bundles), "bundle"), strings.Join(shown, ", "))
	if len(shown) < len(bundles) {
		m += ", …"
	}
	return m
}

func joined(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined)
}

// roomOf what an agent tells; nil where it tells none, or what cannot be read.
func roomOf(r *pb.Room) *v1alpha1.NodeRoom {
	if r == nil {
		return nil
	}
	room, err := atoll.ParseRoom(r.GetClasses())
	if err != nil {
		return nil
	}
	return &v1alpha1.NodeRoom{Classes: room.Lines()}
}

// quantities that can be read; the others are left out.
func quantities(in map[string]string) corev1.ResourceList {
	var out corev1.ResourceList
	for name, v := range in {
		if q, err := atoll.ParseQuantity(v); err == nil {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

// equal statuses say the same; only the time of an unchanged condition may differ,
// and derive keeps that.
func equal(a, b v1alpha1.ClusterStatus) bool { return apiequality.Semantic.DeepEqual(a, b) }

// sameConditions compares all but texts.
func sameConditions(a, b []metav1.Condition) bool {
	if len(a) != len(b) {
		return false
	}
	for _, c := range b {
		if !meta.IsStatusConditionPresentAndEqual(a, c.Type, c.Status) {
			return false
		}
	}
	return true
}
