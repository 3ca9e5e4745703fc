package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// RecoverRecords adds the records of objects that exist in the member and that the store has lost,
// for example after a deletion of its Secrets. The objects carry the Bundle, the template, and
// whether they existed before. They are kept until the hub sends their Bundles again.
//
// It costs one request for each served kind, and none when no record is missing. The client must
// have discovered the APIs.
func RecoverRecords(ctx context.Context, client *member.Client, stored *store.StoredContents) error {
	known := map[atoll.ItemKey]bool{}
	for _, r := range stored.Records {
		known[r.Key] = true
	}
	if !hasLostRecords(stored, known) {
		return nil
	}
	for _, res := range client.APIs().ListableResources() {
		found, err := client.ListLabelled(ctx, res, atoll.LabelBundleUID)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err), apierrors.IsForbidden(err):
			continue // what may not be listed was not applied either
		case err != nil:
			return fmt.Errorf("look in the member for objects of kind %s that the agent applied: %w", res.Kind, err)
		}
		for i := range found {
			v := observe.ViewByExistence(&found[i], res.Group, res.Kind)
			if r, ours := recordOf(v, res); ours && !known[v.Key] {
				stored.Records = append(stored.Records, r)
			}
		}
	}
	return nil
}

// hasLostRecords reports whether records may be missing. Every item of a stored Bundle has one.
func hasLostRecords(stored *store.StoredContents, known map[atoll.ItemKey]bool) bool {
	for i := range stored.Bundles {
		for _, it := range stored.Bundles[i].Holding.Manifest.Items {
			if !known[it.Key] {
				return true
			}
		}
	}
	return len(known) == 0
}

// recordOf returns the record of an object; not ours when but its labels look so, as those of endpoints do
// that take over the labels of their Service.
func recordOf(v observe.View, res member.Resource) (r ownership.Record, ours bool) {
	if v.Owned == "" || v.Label == "" || v.Template == "" || v.Controlled {
		return r, false
	}
	r = ownership.Record{Key: v.Key, APIVersion: res.GVK().GroupVersion().String(), UID: v.UID, Label: v.Label}
	if v.Key.IsNamespace() && v.Template == implicitTemplate {
		r.Implicit = true
		return r, true
	}
	r.Template, r.Adopted, r.Owner = v.Template, v.Adopted, v.Label
	r.Claims = map[string]ownership.Claim{v.Label: {State: ownership.Kept, Template: v.Template}}
	r.Hook = ownership.ParseHookRun(v.HookRun, v.Template, v.UID)
	if ownership.RunsOnce(v.Key) {
		r.Ran = v.Template
	}
	return r, true
}
