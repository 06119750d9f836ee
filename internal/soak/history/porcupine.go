package history

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	window      = 100 // holds, so at most 200 operations
	searchLimit = 5 * time.Second
)

// mutex is the sequential lock that holds are compared with.
type mutex struct {
	holder uint64 // the holder's token, 0 if free
	last   uint64 // the highest token so far
}

type mutexInput struct {
	release bool
	token   uint64
}

// mutexModel has no leases that expire. A hold that did not end by its release has a
// release without a known end, which may take effect at any time after the grant, or
// never: then it comes last and finds another holder.
var mutexModel = porcupine.Model{
	Init: func() any { return mutex{} },
	Step: func(state, input, output any) (bool, any) {
		m, in := state.(mutex), input.(mutexInput)
		switch {
		case !in.release:
			return m.holder == 0 && in.token > m.last, mutex{in.token, in.token}
		case m.holder == in.token:
			return true, mutex{0, m.last}
		}
		return output.(Outcome) != OK, m
	},
	DescribeOperation: func(input, output any) string {
		in := input.(mutexInput)
		if in.release {
			return fmt.Sprintf("release %d: %v", in.token, output)
		}
		return fmt.Sprintf("acquire %d", in.token)
	},
}

// SecondOpinion has porcupine search for an order of acquires and releases that a
// mutex allows, in short windows of each key's holds. A search that does not end
// counts as a failure. save, if not nil, is called with the picture of each failure.
func SecondOpinion(h *History, save func(key string, info porcupine.LinearizationInfo)) []Violation {
	x := newIndex(h)
	var found []Violation
	for _, key := range h.Keys {
		holds := x.holds[key]
		for len(holds) > 0 {
			n := min(window, len(holds))
			part := holds[:n]
			holds = holds[n:]
			result, info := porcupine.CheckOperationsVerbose(mutexModel, operations(part), searchLimit)
			if result == porcupine.Ok {
				continue
			}
			found = append(found, Violation{Invariant: "porcupine", Key: key, At: part[0].grant.Call,
				Text:    fmt.Sprintf("%s: tokens %d to %d", result, part[0].grant.Token, part[n-1].grant.Token),
				Records: []Record{part[0].grant, part[n-1].grant}})
			if save != nil {
				save(key, info)
			}
		}
	}
	return found
}

func operations(holds []*hold) []porcupine.Operation {
	var ops []porcupine.Operation
	for i, h := range holds {
		clipped := h.lease != nil && h.lease.clipped != Never
		if clipped && h.grant.Ret > h.lease.clipped {
			continue // handed on before its process learned that the lease was lost
		}
		ops = append(ops, porcupine.Operation{
			ClientId: i, Input: mutexInput{token: h.grant.Token}, Output: OK,
			Call: h.grant.Call, Return: h.grant.Ret,
		})
		end := porcupine.Operation{
			ClientId: i, Input: mutexInput{release: true, token: h.grant.Token}, Output: Unknown,
			Call: h.grant.Ret, Return: Never,
		}
		// Holds of a lease that a fault ended may overlap with others.
		if h.release != nil && h.release.Outcome == OK && !clipped {
			end.Output, end.Call, end.Return = OK, h.release.Call, h.release.Ret
		}
		ops = append(ops, end)
	}
	return ops
}

// SavePicture writes the picture of a search to path, as HTML.
func SavePicture(info porcupine.LinearizationInfo, path string) error {
	return porcupine.VisualizePath(mutexModel, info, path)
}
