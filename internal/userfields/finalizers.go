package userfields

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// removeHubControllerFinalizers removes from live the finalizers that only other managers than the writers of
// the template own. Their controllers run on the hub, and would never take them off in a member. obj is
// the template with its managedFields. A finalizer without an owner stays in live.
func removeHubControllerFinalizers(live, obj *unstructured.Unstructured) {
	meta := ChildMap(live.Object, "metadata")
	list, _ := meta["finalizers"].([]any)
	if len(list) == 0 {
		return
	}
	trees, err := userOwnerTreesByManager(obj)
	if err != nil {
		return // parseOwners reports it
	}
	isWriter := (*ownerTree).writesContent
	if !anyWritesContent(trees) {
		isWriter = func(*ownerTree) bool { return true }
	}
	meta["finalizers"] = slices.DeleteFunc(list, func(f any) bool {
		isOwned := false
		for _, tree := range trees {
			if owner := tree.childField("metadata").childField("finalizers").findValue(f); owner.isOwned() {
				if isWriter(tree) {
					return false
				}
				isOwned = true
			}
		}
		return isOwned
	})
}

// writesContent reports whether the manager owns a field outside of the metadata.
func (o *ownerTree) writesContent() bool {
	for name := range o.fields {
		if name != "metadata" {
			return true
		}
	}
	return false
}

// anyWritesContent is false for an object that is metadata alone, such as a Namespace. Then each manager
// counts as a writer.
func anyWritesContent(trees map[string]*ownerTree) bool {
	for _, tree := range trees {
		if tree.writesContent() {
			return true
		}
	}
	return false
}

// userOwnerTreesByManager reads the managedFields of users, in one tree for each manager.
func userOwnerTreesByManager(obj *unstructured.Unstructured) (map[string]*ownerTree, error) {
	trees := map[string]*ownerTree{}
	for _, entry := range userManagedEntries(obj) {
		manager, _ := entry["manager"].(string)
		if trees[manager] == nil {
			trees[manager] = &ownerTree{}
		}
		if err := trees[manager].insertManagedFieldsEntry(entry); err != nil {
			return nil, err
		}
	}
	return trees, nil
}
