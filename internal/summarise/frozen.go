package summarise

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// whyFrozen says of an item that does not follow its template why, and what may be
// done; empty for other items, and for what is only a dependency of such: that one says it.
func whyFrozen(item *atoll.Item) string {
	switch {
	case item.State == atoll.ItemUnnamed:
		return "nothing names it as a dependency any more, although nobody edited what did: it stays as it was last sent and edits are not sent; place it by a policy or give it its labels back, or delete it, which removes it"
	case item.Dependency:
		return ""
	case item.State == atoll.ItemUnclaimed:
		return "nothing places it any more: it stays as it was last sent and edits are not sent; place it again, or delete it, which removes it"
	case item.State == atoll.ItemUnaccounted:
		return "its template is gone and nobody was seen to delete it: it stays as it was last sent; apply it again, or delete that, which removes it"
	}
	return ""
}

// frozenWait says it of the first such item in few words; empty where there is none.
// A Secret is not named: who may see the Bundle may not always list Secrets.
func frozenWait(content *atoll.Content) string {
	if content == nil {
		return ""
	}
	text, more := "", 0
	for i := range content.Items {
		item := &content.Items[i]
		why := whyFrozen(item)
		switch {
		case why == "":
		case text != "":
			more++
		case item.Key.IsSecret():
			text = fmt.Sprintf("a Secret is %s", item.State)
		default:
			text = fmt.Sprintf("%s/%s is %s", item.Key.Kind, item.Key.Name, item.State)
		}
	}
	switch {
	case text == "":
		return ""
	case more > 0:
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text + ": edits are not sent; its owner must act"
}

// frozen adds to what is refused the items that do not follow their templates.
func frozen(found map[refusal]refusers, content *atoll.Content) {
	if content == nil {
		return
	}
	for i := range content.Items {
		item := &content.Items[i]
		if why := whyFrozen(item); why != "" && item.State != atoll.ItemUnaccounted {
			found[refusal{item.Key, string(item.State)}] = refusers{message: why}
		}
	}
}
