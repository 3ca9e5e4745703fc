package decommission

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// recordMost is how many bytes a list of what is left behind has at most.
const recordMost = 256 << 10

// recordLeftBehind records what is left behind in a cluster, for people. A record of an earlier cluster of
// that name is replaced.
func recordLeftBehind(ctx context.Context, w client.Client, c *v1alpha1.Cluster, why string, behind []string, now time.Time) error {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: atoll.RemovedRecordName(c.Name), Namespace: atoll.SystemNamespace, Labels: map[string]string{atoll.LabelRemoved: c.Name}},
		Data: map[string]string{
			"cluster": c.Name, "uid": string(c.UID), "at": now.UTC().Format(time.RFC3339),
			"mode": string(c.Spec.Removal.Mode), "why": why, "behind": joinLinesBounded(behind),
		},
	}
	err := w.Create(ctx, m)
	if apierrors.IsAlreadyExists(err) {
		err = w.Update(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("write down what is left behind in cluster %s: %w", c.Name, err)
	}
	return nil
}

// joinLinesBounded returns a list of lines, bounded.
func joinLinesBounded(lines []string) string {
	var b strings.Builder
	for i, l := range lines {
		if b.Len()+len(l) > recordMost {
			fmt.Fprintf(&b, "and %d more\n", len(lines)-i)
			break
		}
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return b.String()
}

// listItemsStillInMember lists the items of rows, with the Bundle, that are in the member by the hub's
// records. A Revision that is gone held nothing that a row still names.
func (r *RemovalReconciler) listItemsStillInMember(ctx context.Context, rows []state.Row) (out []string, err error) {
	for _, row := range rows {
		if row.Status == nil || row.Spec.IsRemovalDone(row.Status) {
			continue
		}
		content, err := r.Revisions.GetContent(ctx, row.Spec.Revision)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list what is left behind: %w", err)
		}
		for i := range content.Items {
			k := content.Items[i].Key
			kind, name := k.Kind, k.Name
			if k.Group != "" {
				kind += "." + k.Group
			}
			if k.Namespace != "" {
				name = k.Namespace + "/" + name
			}
			out = append(out, fmt.Sprintf("%s %s (bundle %s)", kind, name, bundleName(row)))
		}
	}
	return out, nil
}
