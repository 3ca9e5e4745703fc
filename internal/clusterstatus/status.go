package clusterstatus

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
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/quantity"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// troubleMost is how many bytes of an agent's own words the condition Ready repeats: what
// the schema allows holds although nothing checks it when the hub writes.
const troubleMost = 2000

// unclaimedShown is how many bundles the condition names.
const unclaimedShown = 20

// memberFacts about a member.
type memberFacts struct {
	up bool
	// silent: the stream or the check-ins have been away for longer than SilentAfter.
	silent bool
	// fresh: inventory was sent on the stream that is up, or was when it was lost.
	fresh bool
	// inventory that is not in the store yet; nil: the Cluster's status has it.
	inventory *pb.Inventory
	// apisPending: the set of APIs of the inventory is not stored yet, so that the Cluster goes on
	// naming the one before.
	apisPending bool
	// answers: the member's API does, by the last inventory; trouble is why not, or what of
	// the member could not be read though it does.
	answers bool
	trouble string
	// compared: what the member holds was compared with its rows, so that unclaimed
	// means something.
	compared  bool
	unclaimed []string
	// pushed is the state of the hub's own agent of the member; nil: this hub runs none.
	pushed *Pushed
	// certificate that the agent has come by, or was given, here: when it ends, in Unix
	// seconds, 0 where that is not known, so that the last word stays; and whether it should
	// have been renewed long since.
	certificate int64
	overdue     bool
	// misbehaviour of the agent; nil: this hub saw none.
	misbehaviour *misbehaviour
}

// deriveStatus returns the status that the facts make of the Cluster's present one.
func deriveStatus(c *v1alpha1.Cluster, f memberFacts, now metav1.Time) v1alpha1.ClusterStatus {
	s := *c.Status.DeepCopy()
	if i := f.inventory; i != nil {
		s.AgentVersion = i.GetAgentVersion()
	}
	// Without a version the agent could not read its member yet: what is known of it stays.
	if i := f.inventory; i.GetKubernetesVersion() != "" {
		s.KubernetesVersion = i.GetKubernetesVersion()
		if !f.apisPending {
			s.APIsHash = i.GetApisHash()
		}
		s.Nodes = v1alpha1.NodeSummary{
			Total: i.GetNodesTotal(), Ready: i.GetNodesReady(),
			Summary: fmt.Sprintf("%d/%d", i.GetNodesReady(), i.GetNodesTotal()),
		}
		s.Resources = v1alpha1.ResourceSummary{Allocatable: parseQuantities(i.GetAllocatable()), Requested: parseQuantities(i.GetRequested())}
		s.Resources.FreeCapacity, s.Resources.Room = reportedCapacity(i.GetRoom())
		s.Properties = reportedProperties(i.GetProperties())
	}
	conditions := conditionSetter{c, &s.Conditions, now}
	conditions.setConnectionConditions(f)
	conditions.setRareConditions(f)
	return s
}

// setConnectionConditions sets the conditions of the way to the member.
func (s conditionSetter) setConnectionConditions(f memberFacts) {
	c, set := s.cluster, s.set
	if c.Spec.Accepted {
		set(v1alpha1.ClusterAccepted, metav1.ConditionTrue, atoll.ReasonAccepted, "")
	} else {
		set(v1alpha1.ClusterAccepted, metav1.ConditionFalse, atoll.ReasonWaitsForAdministrator, "on the hub run: atoll accept "+c.Name)
	}
	switch {
	case f.up || f.fresh || hasJoined(c): // an agent that checks in may be gone again
		set(v1alpha1.ClusterJoined, metav1.ConditionTrue, atoll.ReasonAgentConnected, "")
	case c.Spec.IsPushed():
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, atoll.ReasonWaitsForAgent, "the agent that the hub runs has not connected yet; the condition Pushed has the reason")
	case c.Spec.Accepted:
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, atoll.ReasonWaitsForAgent, "the agent has not connected yet; see its log in the member")
	default:
		set(v1alpha1.ClusterJoined, metav1.ConditionFalse, atoll.ReasonWaitsForAcceptance, "")
	}
	if cond := pushedCondition(c, f); cond != nil {
		set(v1alpha1.ClusterPushed, cond.Status, atoll.Reason(cond.Reason), phrase.TruncateText(cond.Message, troubleMost))
	} else {
		meta.RemoveStatusCondition(s.conditions, v1alpha1.ClusterPushed)
	}
	status, reason, message := readyCondition(c, f)
	set(v1alpha1.ClusterReady, status, reason, message)
}

// setRareConditions sets the conditions that are false in most Clusters.
func (s conditionSetter) setRareConditions(f memberFacts) {
	s.setMisbehaving(f)
	switch {
	case !f.compared:
	case len(f.unclaimed) > 0:
		s.set(v1alpha1.ClusterUnclaimed, metav1.ConditionTrue, atoll.ReasonHeldByMember, unclaimedMessage(f.unclaimed))
	default:
		s.resetConditionToNormal(v1alpha1.ClusterUnclaimed)
	}
	switch {
	case f.certificate == 0:
	case f.overdue:
		s.set(v1alpha1.ClusterCertificateExpiring, metav1.ConditionTrue, atoll.ReasonNotRenewed, "the agent's certificate ends at "+
			phrase.FormatTime(time.Unix(f.certificate, 0))+" and the agent has not renewed it at half of its life: see the agent's log in the member. When it has ended, the agent requests another by its key")
	default:
		s.resetConditionToNormal(v1alpha1.ClusterCertificateExpiring)
	}
}

// reportedProperties returns the properties that an agent reports, by name: as many as the API admits, and of none more
// than that.
func reportedProperties(reported map[string]string) []v1alpha1.ClusterProperty {
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

// readyCondition returns the condition Ready. An unknown state keeps the last report.
func readyCondition(c *v1alpha1.Cluster, f memberFacts) (status metav1.ConditionStatus, reason atoll.Reason, message string) {
	old := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	every := c.Spec.CheckInInterval()
	switch {
	case !c.Spec.Accepted:
		return metav1.ConditionUnknown, atoll.ReasonNotAccepted, ""
	case f.isReportCurrent(every):
		return readyConditionFromReport(c, f, every)
	case isPushAgentBlocked(c, f) && (f.silent || !hasJoined(c)):
		cond := pushedCondition(c, f)
		return metav1.ConditionUnknown, atoll.Reason(cond.Reason), phrase.TruncateText(cond.Message, troubleMost)
	case f.silent:
		reason, message = silenceReason(every)
		return metav1.ConditionUnknown, reason, message
	case !f.up && !hasJoined(c): // whatever kept the hub's own agent before is not what does now
		return metav1.ConditionUnknown, atoll.ReasonNeverConnected, ""
	case old != nil && old.Reason != string(atoll.ReasonNotAccepted):
		return old.Status, atoll.Reason(old.Reason), old.Message
	case f.up:
		return metav1.ConditionUnknown, atoll.ReasonWaitsForInventory, "the agent is connected and has not read yet what its member is; where that lasts, its log in the member has the reason"
	}
	return metav1.ConditionUnknown, atoll.ReasonNeverConnected, ""
}

// isReportCurrent reports whether what the agent reported last holds. A report at a check-in holds until the next.
func (f memberFacts) isReportCurrent(every time.Duration) bool {
	return f.fresh && (f.up || every > 0 && !f.silent)
}

// silenceReason returns why an agent counts as silent.
func silenceReason(every time.Duration) (reason atoll.Reason, message string) {
	if every > 0 {
		return atoll.ReasonCheckInsMissed, "the agent has missed two check-ins, which come every " + phrase.FormatDuration(every) + "; what runs in the member goes on running"
	}
	return atoll.ReasonStreamLost, "the agent has no stream to the hub; what runs in the member goes on running"
}

// readyConditionFromReport returns the condition Ready while the last report holds.
func readyConditionFromReport(c *v1alpha1.Cluster, f memberFacts, every time.Duration) (status metav1.ConditionStatus, reason atoll.Reason, message string) {
	switch {
	case !f.answers && isPushAgentBlocked(c, f):
		cond := pushedCondition(c, f)
		return metav1.ConditionFalse, atoll.Reason(cond.Reason), phrase.TruncateText(cond.Message, troubleMost)
	case !f.answers:
		return metav1.ConditionFalse, atoll.ReasonMemberNotReady, f.trouble
	case every > 0:
		return metav1.ConditionTrue, atoll.ReasonAgentChecksIn, strings.TrimSuffix("the agent checks in every "+phrase.FormatDuration(every)+"; "+f.trouble, "; ")
	}
	return metav1.ConditionTrue, atoll.ReasonAgentConnected, f.trouble
}

func unclaimedMessage(bundles []string) string {
	shown := bundles[:min(len(bundles), unclaimedShown)]
	m := fmt.Sprintf("the member holds %s without a row on the hub, and keeps what it holds: %s", phrase.CountNoun(len(bundles), "bundle"), strings.Join(shown, ", "))
	if len(shown) < len(bundles) {
		m += ", …"
	}
	return m
}

func hasJoined(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined)
}

// reportedCapacity returns the free capacity that an agent reports; nil when it reports none, or one
// that cannot be read. The text is for hubs of v0.1.0, which may lead while hubs are upgraded.
func reportedCapacity(r *pb.Room) (*v1alpha1.FreeCapacity, *v1alpha1.NodeRoom) {
	if r == nil {
		return nil, nil
	}
	free, err := freecapacity.ParseClasses(r.GetClasses())
	if err != nil {
		return nil, nil
	}
	return free.ToStatus(), &v1alpha1.NodeRoom{Classes: free.EncodeClasses()}
}

// parseQuantities returns the quantities that can be read; the others are left out.
func parseQuantities(in map[string]string) corev1.ResourceList {
	var out corev1.ResourceList
	for name, v := range in {
		if q, err := quantity.Parse(v); err == nil {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(name)] = q
		}
	}
	return out
}

// equalStatuses reports whether two statuses are semantically equal, times included.
func equalStatuses(a, b v1alpha1.ClusterStatus) bool { return apiequality.Semantic.DeepEqual(a, b) }

// equalConditionStatuses compares all but texts.
func equalConditionStatuses(a, b []metav1.Condition) bool {
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
