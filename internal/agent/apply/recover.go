package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// Recover adds to what was stored the records of objects that are in the member and
// that the store has lost, as when somebody deleted its Secrets. The objects carry
// what is needed to know them: whose they are, of which template, and whether they
// were there before. They are kept until the hub speaks of their Bundles again.
//
// It costs one request per kind that the member serves, and none when no record is
// missing. The client must have discovered.
func Recover(ctx context.Context, client *member.Client, stored *store.Contents) error {
	known := map[atoll.ItemKey]bool{}
	for _, r := range stored.Records {
		known[r.Key] = true
	}
	if !lost(stored, known) {
		return nil
	}
	for _, res := range client.APIs().Listable() {
		found, err := client.Labelled(ctx, res, atoll.LabelBundleUID)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsForbidden(err):
			continue // what may not be listed was not applied either
		case err != nil:
			return fmt.Errorf("look in the member for objects of kind %s that the agent applied: %w", res.Kind, err)
		}
		for i := range found {
			v := observe.OfMeta(&found[i], res.Group, res.Kind)
			if r, ours := recordOf(v, res); ours && !known[v.Key] {
				known[v.Key] = true
				stored.Records = append(stored.Records, r)
			}
		}
	}
	return nil
}

// lost tells whether records may be missing. Every item of a stored Bundle has one.
func lost(stored *store.Contents, known map[atoll.ItemKey]bool) bool {
	for i := range stored.Bundles {
		for _, it := range stored.Bundles[i].Holding.Manifest.Items {
			if !known[it.Key] {
				return true
			}
		}
	}
	return len(known) == 0
}

// recordOf an object; not ours when but its labels look so, as those of endpoints do
// that take over the labels of their Service.
func recordOf(v observe.View, res member.Resource) (r claims.Record, ours bool) {
	if v.Owned == "" || v.Label == "" || v.Template == "" || v.Controlled {
		return r, false
	}
	r = claims.Record{Key: v.Key, APIVersion: res.GVK().GroupVersion().String(), UID: v.UID, Label: v.Label}
	if claims.IsNamespace(v.Key) && v.Template == implicitTemplate {
		r.Implicit = true
		return r, true
	}
	r.Template, r.Adopted, r.Owner = v.Template, v.Adopted, v.Label
	r.Claims = map[string]claims.Claim{v.Label: {State: claims.Kept, Template: v.Template}}
	if claims.RunsOnce(v.Key) {
		r.Ran = v.Template
	}
	return r, true
}
