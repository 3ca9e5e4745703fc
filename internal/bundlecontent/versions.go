package bundlecontent

import "atoll.dev/atoll/internal/atoll"

// setVersionChoice sets whether the item may go to clusters in another API version. unedited is the former item where
// no user wrote since: an upgrade of the hub sends nothing by itself.
func setVersionChoice(item, unedited *atoll.Item) {
	if item.VersionChoice = atoll.CurrentVersionChoice; unedited != nil {
		item.VersionChoice = unedited.VersionChoice
	}
}
