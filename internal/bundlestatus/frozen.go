package bundlestatus

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// whyFrozen returns why an item does not follow its template, and what may be done. It is empty for
// other items, and for a mere dependency of such an item.
func whyFrozen(item *atoll.Item) string {
	switch {
	case item.State == atoll.ItemUnreferenced:
		return "nothing names it as a dependency any more, although no template that did was edited: it stays as it was last sent and edits are not sent; place it by a policy or give it its labels back, or delete it, which removes it"
	case item.Dependency:
		return ""
	case item.State == atoll.ItemUnclaimed:
		return "nothing places it any more: it stays as it was last sent and edits are not sent; place it again, or delete it, which removes it"
	case item.State == atoll.ItemUnaccounted:
		return "its template is gone without a recorded deletion: it stays as it was last sent; apply it again, or delete that, which removes it"
	}
	return ""
}

// frozenWait describes the first such item in few words; its text is empty where there is none. A
// Secret is not named: a reader of the Bundle may not always list Secrets.
func frozenWait(content *atoll.Content) waitCause {
	if content == nil {
		return waitCause{}
	}
	text, more, reason := "", 0, atoll.Reason("")
	for i := range content.Items {
		item := &content.Items[i]
		why := whyFrozen(item)
		switch {
		case why == "":
		case text != "":
			more++
		case item.Key.IsSecret():
			text, reason = fmt.Sprintf("a Secret is %s", item.State), frozenReason(item.State)
		default:
			text, reason = fmt.Sprintf("%s/%s is %s", item.Key.Kind, item.Key.Name, item.State), frozenReason(item.State)
		}
	}
	switch {
	case text == "":
		return waitCause{}
	case more > 0:
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return waitCause{reason: reason, text: text + ": edits are not sent; its owner must act"}
}

func frozenReason(s atoll.ItemState) atoll.Reason {
	switch s {
	case atoll.ItemUnclaimed:
		return atoll.ReasonUnclaimed
	case atoll.ItemUnreferenced:
		return atoll.ReasonUnnamed
	}
	return atoll.ReasonUnaccounted
}

// addFrozenRefusals adds to what is refused the items that do not follow their templates.
func addFrozenRefusals(found map[refusal]refusers, content *atoll.Content) {
	if content == nil {
		return
	}
	for i := range content.Items {
		item := &content.Items[i]
		if why := whyFrozen(item); why != "" && item.State != atoll.ItemUnaccounted {
			found[refusal{item.Key, frozenReason(item.State)}] = refusers{message: why}
		}
	}
}
