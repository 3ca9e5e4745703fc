package preview

import (
	"reflect"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A removal names the hooks that it runs, those before it first: as far as the user may read them, and where the cluster has
// them. A removal that leaves the objects runs none.
func TestHooksThatARemovalRuns(t *testing.T) {
	job := func(name, events string) atoll.Item {
		hook, _ := atoll.ParseHook(events, "")
		return atoll.Item{Key: atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: name}, APIVersion: "batch/v1", UID: "t", Object: []byte(`{}`), Treatment: &atoll.Treatment{Hook: hook}}
	}
	hidden, absent := job("hidden", "PreDelete"), job("absent", "PreDelete")
	active := &atoll.RowSpec{UID: "u", Revision: "r1", Phase: atoll.RowActive, Absent: []string{absent.Key.String()}}
	for name, c := range map[string]struct {
		mode v1alpha1.RemovalMode
		was  *atoll.RowSpec
		want []string
	}{
		"removed":                   {v1alpha1.RemoveDelete, active, []string{"Job/backup (PreDelete)", "Job/both (PreDelete)", "Job/bye (PostDelete)", "Job/both (PostDelete)"}},
		"left":                      {v1alpha1.RemoveOrphan, active, nil},
		"of a content that is lost": {v1alpha1.RemoveDelete, &atoll.RowSpec{UID: "u", Revision: "r0", Phase: atoll.RowActive}, nil},
	} {
		plan := compareShopRows(c.was, nil, func(b *BundleChange, in *Input) {
			content := *b.Content
			content.Removal = c.mode
			content.Items = append([]atoll.Item{job("backup", "PreDelete"), job("bye", "PostSync,PostDelete"), job("both", "PreDelete,PostDelete"), job("migrate", "PreSync"), hidden, absent}, content.Items...)
			b.Content, b.Revision = &content, "r1"
			in.MayReadItem = func(k atoll.ItemKey) bool { return k != hidden.Key }
		})
		if len(plan.Rows) != 1 || plan.Rows[0].Change != ChangeRemoved || !reflect.DeepEqual(plan.Rows[0].Hooks, c.want) {
			t.Errorf("%s: %+v", name, plan.Rows)
		}
	}
}
