//! How the ways out behave, through their public doors.
