// A placeholder: the build of the folder `web` replaces it.
