package torture

// The tests drive the real binary, which they build themselves. These imports make a change of it a reason
// to run them again.
import (
	_ "github.com/fairlane-dev/fairlane/internal/demo"
	_ "github.com/fairlane-dev/fairlane/internal/server"
)
