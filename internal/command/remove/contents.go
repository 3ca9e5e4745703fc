package remove

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// appliedObject is an object that Atoll applied in the cluster, by the hub's records.
type appliedObject struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Bundle    string `json:"bundle,omitempty"`
	// State that the cluster last reported of the Bundle; "" if none ever.
	State atoll.RowState `json:"state,omitempty"`
	// Only: the Bundle is in no other cluster.
	Only bool `json:"only,omitempty"`
}

// unread stands for the names of the Secrets of a Bundle, where the user may not read them.
const unread = "(Secrets whose names you may not read)"

// clusterContents lists the items of all rows of the cluster. A revision that is gone already held
// nothing that a row still names.
func clusterContents(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster) (found []appliedObject, err error) {
	elsewhere := map[string]bool{} // by Bundle
	uid := string(cluster.UID)
	rows, err := client.ListRows(ctx, c, "", func(r client.Row) bool {
		if r.Spec.UID != uid && r.Spec.Phase == atoll.RowActive {
			elsewhere[bundleName(r)] = true
		}
		return r.Spec.UID == uid
	})
	if err != nil {
		return nil, err
	}
	found = []appliedObject{}
	for _, r := range rows {
		if r.Bundle == "" { // no Bundle's: an empty namespace
			found = append(found, appliedObject{Kind: "Namespace", Name: r.Namespace})
			continue
		}
		keys, hidden, err := client.ItemKeys(ctx, c, r.Spec.Revision)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if hidden != nil {
			keys = append(keys, atoll.ItemKey{Kind: "Secret", Namespace: r.Namespace, Name: unread})
		}
		for _, k := range keys {
			if !r.Spec.IncludesItem(k) {
				continue
			}
			o := appliedObject{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Bundle: bundleName(r), Only: !elsewhere[bundleName(r)]}
			o.State = reportedState(r)
			// A cluster that has come back may still have the report of its removal.
			if !r.Spec.IsRemovalDone(r.Status) {
				found = append(found, o)
			}
		}
	}
	return found, nil
}

// reportedState returns the state that a row reports; empty without one, or where it reports its removal.
func reportedState(r client.Row) atoll.RowState {
	if r.Status == nil || r.Status.State == atoll.RowRemoved {
		return ""
	}
	return r.Status.State
}

func bundleName(r client.Row) string {
	if r.Namespace == "" {
		return r.Bundle
	}
	return r.Namespace + "/" + r.Bundle
}

// printObjects prints what was found under a headline.
func printObjects(out io.Writer, headline string, found []appliedObject) error {
	if _, err := fmt.Fprintln(out, headline); err != nil || len(found) == 0 {
		return err
	}
	fmt.Fprintln(out)
	table := output.NewTable(out, "KIND", "NAMESPACE", "NAME", "BUNDLE", "LAST STATE", "ELSEWHERE")
	for _, o := range found {
		kind, elsewhere := o.Kind, "yes"
		if o.Group != "" {
			kind += "." + o.Group
		}
		if o.Only {
			elsewhere = "no"
		}
		table.AddRow(kind, o.Namespace, o.Name, o.Bundle, string(o.State), elsewhere)
	}
	return table.Flush()
}
